// Opening a file that the user has named, and nothing else.
#pragma once

#include <sys/types.h>

#include <string>

namespace smddp {

// Opens or makes a plain file and follows no link: the path may lie in a folder that others can write to. `flags` are
// open's besides O_CREAT. Returns the descriptor, which the caller closes, or -1 and says why.
int OpenPlainFile(const std::string& path, int flags, mode_t mode, std::string* why);

}  // namespace smddp
