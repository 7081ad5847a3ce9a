#include "runtime/named/request_numbers.h"

#include <algorithm>
#include <utility>

#include "core/hash.h"

namespace smddp {
namespace {

// A program that makes more different requests than this between two equal ones does not repeat a step.
constexpr size_t kMaxOnce = 16384;

std::string ContentOf(const Announcement& announcement) {
  FieldWriter fields;
  Announcement::VisitRequest(announcement, fields);
  return fields.Take();
}

}  // namespace

bool GivenNumbers::Complete(Announcement* announcement) const {
  if (announcement->number == kUnnumbered) return true;
  if (announcement->number >= requests_.size()) return false;
  Announcement whole = requests_[announcement->number];
  whole.data = std::move(announcement->data);
  whole.duplicate = announcement->duplicate;
  whole.round = announcement->round;
  *announcement = std::move(whole);
  return announcement->IsPossible();
}

bool GivenNumbers::Agree(const std::map<int, Announcement>& by_rank) {
  const uint32_t number = by_rank.begin()->second.number;
  return number != kUnnumbered && std::all_of(by_rank.begin(), by_rank.end(), [number](const auto& each) {
           return each.second.number == number && !each.second.duplicate;
         });
}

void GivenNumbers::Number(const std::map<int, Announcement>& by_rank, Verdict* verdict) {
  const Announcement& first = by_rank.begin()->second;
  if (Agree(by_rank)) {
    verdict->number = first.number;
    verdict->told = true;
  } else if (first.number == kUnnumbered && requests_.size() < capacity_ && !OutlivesRounds(first.kind)) {
    const std::string content = ContentOf(first);
    if (once_.size() >= kMaxOnce) once_.clear();
    if (once_.insert(Fnv1a(content)).second) return;
    const auto same = [&](const auto& each) { return ContentOf(each.second) == content; };
    if (!std::all_of(by_rank.begin(), by_rank.end(), same)) return;
    verdict->number = static_cast<uint32_t>(requests_.size());
    requests_.push_back(first);
    requests_.back().data.clear();
    requests_.back().number = verdict->number;
  }
}

bool ToldNumbers::Read(int coordinator, RequestRef* request) {
  if (request->number == kUnnumbered) return !request->told;
  std::unordered_map<uint32_t, std::string>& names = names_[coordinator];
  if (!request->told) return names.emplace(request->number, request->name).second;
  const auto at = names.find(request->number);
  if (at == names.end()) return false;
  request->name = at->second;
  return true;
}

void ToldNumbers::Keep(const Announcement& request, const RequestRef& told) {
  if (told.number != kUnnumbered && !told.told) numbers_[ContentOf(request)] = told.number;
}

void ToldNumbers::Shorten(Announcement* announcement) const {
  if (numbers_.empty() || OutlivesRounds(announcement->kind)) return;
  const auto at = numbers_.find(ContentOf(*announcement));
  if (at != numbers_.end()) announcement->number = at->second;
}

}  // namespace smddp
