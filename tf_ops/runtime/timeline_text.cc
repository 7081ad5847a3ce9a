#include "runtime/timeline_text.h"

#include <algorithm>
#include <cstdio>

namespace smddp {
namespace {

constexpr size_t kLongestName = 400;
// Eager code may give every step's requests names of their own; what comes later shares one lane.
constexpr size_t kMostLanes = 4096;
constexpr size_t kMostTracks = 64;

// The length of the UTF-8 character at `at`, or 0.
size_t CharacterAt(const std::string& text, size_t at) {
  const unsigned char first = static_cast<unsigned char>(text[at]);
  const size_t length = first < 0x80 ? 1 : first >= 0xC2 && first < 0xE0 ? 2 : first >= 0xE1 && first < 0xED ? 3 : 0;
  if (length == 0 || at + length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[at + i]) & 0xC0) != 0x80) return 0;
  }
  return length;
}

std::string MpiNameOf(const std::string& kind) { return kind == "BROADCAST" ? "MPI_BCAST" : "MPI_" + kind; }

bool StartsWith(const std::string& text, const char* with) { return text.rfind(with, 0) == 0; }

}  // namespace

std::string JsonText(const std::string& text) {
  std::string json = "\"";
  for (size_t at = 0; at < text.size() && at < kLongestName;) {
    const size_t length = CharacterAt(text, at);
    const char c = text[at];
    if (length == 0) {
      json += "?";
    } else if (c == '"' || c == '\\') {
      json += std::string("\\") + c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof(code), "\\u%04x", c);
      json += code;
    } else {
      json.append(text, at, length);
    }
    at += std::max<size_t>(length, 1);
  }
  return json + "\"";
}

std::string TimelineText::Line(const std::string& name, char phase, int thread, int64_t time_ns,
                               const char* more) const {
  const int64_t since = std::max<int64_t>(0, time_ns - zero_ns_);
  char rest[160];
  std::snprintf(rest, sizeof(rest), ",\"ph\":\"%c\",\"pid\":%d,\"tid\":%d,\"ts\":%lld.%03d%s}\n", phase, rank_, thread,
                static_cast<long long>(since / 1000), static_cast<int>(since % 1000), more);
  return "{\"name\":" + JsonText(name) + rest;
}

std::string TimelineText::Header(const std::string& host, int64_t epoch_us) {
  const std::string rank = std::to_string(rank_);
  const std::string begin = "{\"ph\":\"M\",\"pid\":" + rank + ",\"tid\":0,\"name\":";
  return begin + "\"process_name\",\"args\":{\"name\":" + JsonText("rank " + rank + " on " + host) + "}}\n" +  //
         begin + "\"process_sort_index\",\"args\":{\"sort_index\":" + rank + "}}\n" +                          //
         begin + "\"start_time_since_epoch_in_micros\",\"args\":{\"value\":" + std::to_string(epoch_us) + "}}\n";
}

TimelineText::Lane* TimelineText::LaneFor(const std::string& key, const std::string& name) {
  const auto at = lanes_.find(key);
  if (at != lanes_.end()) return &at->second;
  if (lanes_.size() < kMostLanes) {
    Lane& lane = lanes_[key];
    lane.name = name;
    return &lane;
  }
  Lane& rest = lanes_["others, " + key.substr(0, 2)];  // apart by kind: their phases differ
  rest.name = "others";
  return &rest;
}

// Null when too much is under way at once.
TimelineText::Activity* TimelineText::Start(Lane* lane, std::string* text) {
  const size_t track = std::find(lane->busy.begin(), lane->busy.end(), false) - lane->busy.begin();
  if (track == kMostTracks) return nullptr;
  if (track == lane->busy.size()) {
    const int thread = ++threads_;
    lane->busy.push_back(false);
    lane->threads.push_back(thread);
    const std::string name = lane->name + (track == 0 ? "" : " (" + std::to_string(track + 1) + ")");
    const std::string begin = "{\"ph\":\"M\",\"pid\":" + std::to_string(rank_) + ",\"tid\":" + std::to_string(thread);
    *text += begin + ",\"name\":\"thread_name\",\"args\":{\"name\":" + JsonText(name) + "}}\n";
  }
  lane->busy[track] = true;
  Activity& activity = lane->activities.emplace_back();
  activity.track = static_cast<int>(track);
  return &activity;
}

void TimelineText::Begin(Lane* lane, Activity* activity, const std::string& name, int64_t time_ns,
                         std::string* text) const {
  if (activity == nullptr) return;
  activity->open.push_back(name);
  *text += Line(name, 'B', lane->threads[activity->track], time_ns);
}

void TimelineText::End(const Lane& lane, Activity* activity, int64_t time_ns, std::string* text) const {
  *text += Line(activity->open.back(), 'E', lane.threads[activity->track], time_ns);
  activity->open.pop_back();
}

void TimelineText::Advance(Lane* lane, int phase, const std::string& outer, const std::string& next, int64_t time_ns,
                           std::string* text) {
  const auto found = std::find_if(lane->activities.begin(), lane->activities.end(),
                                  [&](const Activity& activity) { return activity.phase == phase; });
  Activity* activity = found != lane->activities.end() ? &*found : Start(lane, text);
  if (activity == nullptr) return;
  if (!activity->open.empty()) End(*lane, activity, time_ns, text);
  if (activity->open.empty() && !outer.empty()) Begin(lane, activity, outer, time_ns, text);
  Begin(lane, activity, next, time_ns, text);
  activity->phase = phase + 1;
}

void TimelineText::Finish(Lane* lane, int phase, int64_t time_ns, std::string* text) {
  const auto activity = std::find_if(lane->activities.begin(), lane->activities.end(),
                                     [&](const Activity& each) { return each.phase == phase; });
  if (activity == lane->activities.end()) return;
  while (!activity->open.empty()) End(*lane, &*activity, time_ns, text);
  lane->busy[activity->track] = false;
  lane->activities.erase(activity);
}

std::string TimelineText::Add(const TraceEvent& event) {
  const std::string& what = event.what;
  const int64_t at = event.time_ns;
  const std::string index = std::to_string(event.index);
  std::string text;
  if (StartsWith(what, "op_")) {
    Lane* lane = LaneFor("op" + event.name, event.name);
    if (what == "op_announced") Begin(lane, Start(lane, &text), "NEGOTIATE_" + event.detail, at, &text);
    if (what == "op_start") Advance(lane, 0, event.detail, MpiNameOf(event.detail), at, &text);
    if (what == "op_done") Finish(lane, 1, at, &text);
    if (what == "op_failed") Finish(lane, 0, at, &text);
  } else if (StartsWith(what, "tensor_")) {
    const std::string tensor = event.detail.empty() ? event.name + "." + index : event.detail;
    Lane* lane = LaneFor("te" + index + event.name, tensor);
    if (what == "tensor_ready") {
      Activity* activity = Start(lane, &text);
      Begin(lane, activity, "ALLREDUCE", at, &text);
      Begin(lane, activity, "WAIT_FOR_OTHER_TENSOR_DATA", at, &text);
    }
    if (what == "tensor_start") Advance(lane, 0, "ALLREDUCE", "MPI_ALLREDUCE", at, &text);
    if (what == "tensor_done") Finish(lane, 1, at, &text);
  } else if (StartsWith(what, "bucket_")) {
    Lane* lane = LaneFor("bu" + index + event.name, event.name + ", bucket " + index);
    if (what == "bucket_complete") {
      Activity* activity = Start(lane, &text);
      Begin(lane, activity, "ALLREDUCE", at, &text);
      Begin(lane, activity, "QUEUE", at, &text);
    }
    if (what == "bucket_start") Advance(lane, 0, "ALLREDUCE", "MPI_ALLREDUCE", at, &text);
    if (what == "bucket_done") Finish(lane, 1, at, &text);
  } else if (StartsWith(what, "stage_")) {
    Lane* lane =
        LaneFor("st" + index + event.detail + event.name, event.name + ", bucket " + index + ", " + event.detail);
    if (what == "stage_begin") Begin(lane, Start(lane, &text), event.detail, at, &text);
    if (what == "stage_end") Finish(lane, 0, at, &text);
  } else if (what == "cycle_start" && mark_cycles_) {
    text = Line("CYCLE_START", 'i', 0, at, ",\"s\":\"p\"");
  }
  return text;
}

std::string TimelineText::Dropped(int64_t events, int64_t time_ns) const {
  const std::string more = ",\"s\":\"p\",\"args\":{\"count\":" + std::to_string(events) + "}";
  return Line("EVENTS_DROPPED", 'i', 0, time_ns, more.c_str());
}

std::string TimelineText::Close(int64_t time_ns) {
  std::string text;
  for (auto& [key, lane] : lanes_) {
    for (Activity& activity : lane.activities) {
      while (!activity.open.empty()) End(lane, &activity, time_ns, &text);
    }
  }
  lanes_.clear();
  return text;
}

}  // namespace smddp
