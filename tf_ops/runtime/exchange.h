// How ranks tell one another something while the session starts.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/status.h"

namespace smddp {

// Every rank's text, in rank order. Collective.
using Exchange = std::function<Result<std::vector<std::string>>(const std::string&)>;

// Spreads a local result: an error on one rank becomes the same error on all.
Status AllOk(const Status& mine, const Exchange& exchange);

}  // namespace smddp
