#pragma once

namespace smddp {

// Of this library, from the file VERSION.
const char* Version();

}  // namespace smddp
