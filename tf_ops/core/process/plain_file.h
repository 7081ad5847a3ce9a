// Opens a regular file that the user has named, and rejects everything else.
#pragma once

#include <sys/types.h>

#include <string>

namespace smddp {

// Opens or creates a regular file and does not follow links: the path may be in a folder that others can write to.
// `flags` are open's besides O_CREAT. Returns the descriptor, which the caller closes, or -1 with the reason in
// `*why`.
int OpenPlainFile(const std::string& path, int flags, mode_t mode, std::string* why);

}  // namespace smddp
