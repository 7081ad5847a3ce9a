// Detects a fork of a process with a session. The fork has none of the threads, and its view of the session is a copy
// that must be neither used nor ended.
#pragma once

namespace smddp {

// Call it when a session starts; forks made afterwards are recognised.
void WatchForks();
// Was this process forked after WatchForks?
bool IsFork();

}  // namespace smddp
