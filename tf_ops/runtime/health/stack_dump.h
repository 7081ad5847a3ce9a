// The stacks of this process's Python threads, without a word of Python here: a signal handler that somebody else has
// installed (faulthandler.register) writes them into a file, also while a thread holds the interpreter's lock.
#pragma once

#include <string>

namespace smddp {

// The handler of `signal` writes to the file descriptor `file`, which stays open. Once, before a session starts.
void SetStackDump(int signal, int file);
// Raises the signal in the calling thread and returns what the handler wrote; "" when there is none.
std::string DumpStacks();

}  // namespace smddp
