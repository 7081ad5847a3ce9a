#include "core/process/version.h"

namespace smddp {

const char* Version() { return SMDDP_VERSION; }

}  // namespace smddp
