// A fork of a process with a session: it has none of the threads, and what it sees of the session is a copy that must
// not be used, let alone ended.
#pragma once

namespace smddp {

// From here on forks are told apart. Call it when a session starts.
void WatchForks();
// Was this process forked after WatchForks?
bool IsFork();

}  // namespace smddp
