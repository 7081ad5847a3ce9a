// Numbers for requests that recur, so that a repeated request costs a few bytes instead of its name, dtypes and shapes.
//
// When all ranks have made a request with the same arguments for the second time, its coordinator numbers it, and the
// verdict tells the number together with the name. From then on ranks announce the number, and verdicts contain only
// the number. Each coordinator counts from 0, and numbers are never withdrawn: the first `capacity` requests that
// recur have one, so names that a program uses once take no memory of others.
//
// Threads: the engine's.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/control/messages.h"

namespace smddp {

// The numbers that this rank's coordinator has given.
class GivenNumbers {
 public:
  explicit GivenNumbers(size_t capacity) : capacity_(capacity) {}

  // The whole request of an announcement that has its number instead. False: no such number was given.
  bool Complete(Announcement* announcement) const;
  // Have all ranks announced the same request by its number? Then they agree, as they did before.
  static bool Agree(const std::map<int, Announcement>& by_rank);
  // All ranks have announced `by_rank`, and agree. The verdict gets the request's number; a new one the second time.
  void Number(const std::map<int, Announcement>& by_rank, Verdict* verdict);

 private:
  const size_t capacity_;
  std::vector<Announcement> requests_;  // by number
  std::unordered_set<uint64_t> once_;   // hashes of those that were made once, the latest
};

// The numbers that coordinators have told this rank.
class ToldNumbers {
 public:
  // A verdict refers to `request`, which gets its name if only its number was sent. False: an engine of this version
  // does not send that.
  bool Read(int coordinator, RequestRef* request);
  // Remembers the number of this rank's `request`, if `told` is where it is told.
  void Keep(const Announcement& request, const RequestRef& told);
  // `announcement` gets the number of its request, if that was told.
  void Shorten(Announcement* announcement) const;

 private:
  std::map<int, std::unordered_map<uint32_t, std::string>> names_;  // by coordinator, by number
  std::unordered_map<std::string, uint32_t> numbers_;               // by request
};

}  // namespace smddp
