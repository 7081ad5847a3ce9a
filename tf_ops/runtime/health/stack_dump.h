// The stacks of this process's Python threads, without calling Python: a signal handler installed elsewhere
// (faulthandler.register) writes them into a file, also while a thread holds the GIL.
#pragma once

#include <string>

namespace smddp {

// The handler of `signal` writes to the file descriptor `file`, which stays open. Call it once, before a session
// starts.
void SetStackDump(int signal, int file);
// Raises the signal in the calling thread and returns what the handler wrote; "" when there is none.
std::string DumpStacks();

}  // namespace smddp
