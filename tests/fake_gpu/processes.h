// Other processes of this host.
#pragma once

#include <signal.h>

#include <cstdio>
#include <string>

// One that has ended but was not waited for by its parent is not alive.
inline bool IsAlive(int pid) {
  if (kill(pid, 0) != 0) return false;
  std::FILE* const file = std::fopen(("/proc/" + std::to_string(pid) + "/stat").c_str(), "re");
  if (file == nullptr) return false;
  char state = 'Z';
  const bool known = std::fscanf(file, "%*d (%*[^)]) %c", &state) == 1;
  std::fclose(file);
  return !known || (state != 'Z' && state != 'X');
}
