#pragma once

namespace smddp {

// The version of this library, from the file VERSION.
const char* Version();

}  // namespace smddp
