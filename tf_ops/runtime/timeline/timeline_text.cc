#include "runtime/timeline/timeline_text.h"

#include <algorithm>
#include <cstdio>

namespace smddp {
namespace {

constexpr size_t kLongestName = 400;
// Eager code may use new request names in every step; beyond this number they share one track.
constexpr size_t kMaxTracks = 4096;
constexpr size_t kMaxThreads = 64;  // of a track

// The length of the UTF-8 character at `at`; 0 where there is none, or where it is a control character.
size_t CharacterAt(const std::string& text, size_t at) {
  const unsigned char first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) return first < 0x20 ? 0 : 1;
  const size_t length = first >= 0xC2 && first < 0xE0 ? 2 : first >= 0xE1 && first < 0xED ? 3 : 0;
  if (length == 0 || at + length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[at + i]) & 0xC0) != 0x80) return 0;
  }
  return length;
}

// As a JSON string, with its quotes. Long texts are cut; bytes that are not UTF-8, or not printable, are replaced.
std::string JsonText(const std::string& text) {
  std::string json = "\"";
  for (size_t at = 0; at < text.size() && at < kLongestName;) {
    const size_t length = CharacterAt(text, at);
    if (text[at] == '"' || text[at] == '\\') json += '\\';
    json += length == 0 ? "?" : text.substr(at, length);
    at += std::max<size_t>(length, 1);
  }
  return json + "\"";
}

std::string MpiNameOf(const std::string& kind) { return kind == "BROADCAST" ? "MPI_BCAST" : "MPI_" + kind; }

}  // namespace

TimelineText::TimelineText(int rank, const TimelineStart& start) : rank_(rank), start_(start) {
  const std::string number = std::to_string(rank);
  Meta(0, "process_name", "\"name\":" + JsonText("rank " + number + " on " + start.host));
  Meta(0, "process_sort_index", "\"sort_index\":" + number);
  Meta(0, "start_time_since_epoch_in_micros", "\"value\":" + std::to_string(start.epoch_ns / 1000));
}

// `value`: JSON.
void TimelineText::Meta(int thread, const std::string& name, const std::string& value) {
  text_ += "{\"ph\":\"M\",\"pid\":" + std::to_string(rank_) + ",\"tid\":" + std::to_string(thread) + ",\"name\":\"" +
           name + "\",\"args\":{" + value + "}}\n";
}

void TimelineText::Line(const std::string& name, char phase, int thread, int64_t time_ns, const std::string& more) {
  const int64_t since = std::max<int64_t>(0, time_ns - start_.zero_ns);
  char rest[96];
  std::snprintf(rest, sizeof(rest), ",\"ph\":\"%c\",\"pid\":%d,\"tid\":%d,\"ts\":%lld.%03d", phase, rank_, thread,
                static_cast<long long>(since / 1000), static_cast<int>(since % 1000));
  text_ += "{\"name\":" + JsonText(name) + rest + more + "}\n";
}

TimelineText::Track* TimelineText::TrackFor(const std::string& key, const std::string& name) {
  const auto at = tracks_.find(key);
  if (at != tracks_.end()) return &at->second;
  const bool full = tracks_.size() >= kMaxTracks;
  Track& track =
      tracks_[full ? "others, " + key.substr(0, 2) : key];  // separated by kind, so that waiting and running match
  track.name = full ? "others" : name;
  return &track;
}

TimelineText::Activity* TimelineText::Start(Track* track) {
  const auto is_taken = [track](int thread) {
    return std::any_of(track->activities.begin(), track->activities.end(),
                       [thread](const Activity& each) { return each.thread == thread; });
  };
  std::vector<int>& threads = track->threads;
  const size_t at = std::find_if_not(threads.begin(), threads.end(), is_taken) - threads.begin();
  if (at == kMaxThreads) return nullptr;
  if (at == threads.size()) {
    threads.push_back(++threads_);
    const std::string name = track->name + (at == 0 ? "" : " (" + std::to_string(at + 1) + ")");
    Meta(threads_, "thread_name", "\"name\":" + JsonText(name));
  }
  Activity& activity = track->activities.emplace_back();
  activity.thread = threads[at];
  return &activity;
}

void TimelineText::Begin(Activity* activity, const std::string& name, int64_t time_ns) {
  activity->open.push_back(name);
  Line(name, 'B', activity->thread, time_ns);
}

void TimelineText::End(Activity* activity, int64_t time_ns) {
  Line(activity->open.back(), 'E', activity->thread, time_ns);
  activity->open.pop_back();
}

std::deque<TimelineText::Activity>::iterator TimelineText::Find(Track* track, bool running) {
  return std::find_if(track->activities.begin(), track->activities.end(),
                      [running](const Activity& each) { return each.running == running; });
}

void TimelineText::Wait(Track* track, const std::vector<std::string>& names, int64_t time_ns) {
  Activity* const activity = Start(track);
  for (const std::string& name : names) {
    if (activity != nullptr) Begin(activity, name, time_ns);
  }
}

void TimelineText::Run(Track* track, const std::string& outer, const std::string& inner, int64_t time_ns) {
  const auto found = Find(track, /*running=*/false);
  Activity* const activity = found != track->activities.end() ? &*found : Start(track);
  if (activity == nullptr) return;
  if (!activity->open.empty()) End(activity, time_ns);
  if (activity->open.empty()) Begin(activity, outer, time_ns);
  Begin(activity, inner, time_ns);
  activity->running = true;
}

void TimelineText::Finish(Track* track, bool running, int64_t time_ns) {
  const auto activity = Find(track, running);
  if (activity == track->activities.end()) return;
  while (!activity->open.empty()) End(&*activity, time_ns);
  track->activities.erase(activity);
}

void TimelineText::Add(const TraceEvent& event) {
  const int64_t at = event.time_ns;
  const std::string index = std::to_string(event.index), place = index + event.name;
  const std::string bucket_name = event.name + ", bucket " + index;
  const std::string tensor_name = event.detail.empty() ? event.name + "." + index : event.detail;
  const auto op = [&] { return TrackFor("op" + event.name, event.name); };
  const auto tensor = [&] { return TrackFor("te" + place, tensor_name); };
  const auto bucket = [&] { return TrackFor("bu" + place, bucket_name); };
  const auto stage = [&] { return TrackFor("st" + event.detail + place, bucket_name + ", " + event.detail); };
  const auto steps = [&] { return TrackFor("steps", "training steps"); };
  switch (event.what) {
    case TraceWhat::kOpAnnounced:
      return Wait(op(), {"NEGOTIATE_" + event.detail}, at);
    case TraceWhat::kOpStart:
      return Run(op(), event.detail, MpiNameOf(event.detail), at);
    case TraceWhat::kOpDone:
      return Finish(op(), /*running=*/true, at);
    case TraceWhat::kOpFailed:
      return Finish(op(), /*running=*/false, at);
    case TraceWhat::kTensorReady:
      return Wait(tensor(), {"ALLREDUCE", "WAIT_FOR_OTHER_TENSOR_DATA"}, at);
    case TraceWhat::kTensorStart:
      return Run(tensor(), "ALLREDUCE", "MPI_ALLREDUCE", at);
    case TraceWhat::kTensorDone:
      return Finish(tensor(), /*running=*/true, at);
    case TraceWhat::kBucketComplete:
      return Wait(bucket(), {"ALLREDUCE", "QUEUE"}, at);
    case TraceWhat::kBucketStart:
      return Run(bucket(), "ALLREDUCE", "MPI_ALLREDUCE", at);
    case TraceWhat::kBucketDone:
      return Finish(bucket(), /*running=*/true, at);
    case TraceWhat::kStageBegin:
      return Wait(stage(), {event.detail}, at);
    case TraceWhat::kStageEnd:
      return Finish(stage(), /*running=*/false, at);
    case TraceWhat::kStepGradients:
      return Run(steps(), "STEP", "GRADIENTS", at);
    case TraceWhat::kStepDone:
      Finish(steps(), /*running=*/true, at);
      return Wait(steps(), {"STEP", "COMPUTATION"}, at);
    case TraceWhat::kCycleStart:
      if (start_.mark_cycles) Line("CYCLE_START", 'i', 0, at, ",\"s\":\"p\"");
      return;
    default:
      return;
  }
}

void TimelineText::Close(int64_t time_ns, int64_t dropped) {
  for (auto& [key, track] : tracks_) {
    for (Activity& activity : track.activities) {
      while (!activity.open.empty()) End(&activity, time_ns);
    }
  }
  tracks_.clear();
  if (dropped == 0) return;
  Line("EVENTS_DROPPED", 'i', 0, time_ns, ",\"s\":\"p\",\"args\":{\"count\":" + std::to_string(dropped) + "}");
}

}  // namespace smddp
