#include "runtime/timeline_group.h"

#include <sys/stat.h>

#include <utility>

#include "core/clock.h"
#include "core/log.h"
#include "core/wire.h"
#include "runtime/announcement.h"

namespace smddp {
namespace {

constexpr int kTimesAsked = 8;
constexpr size_t kPieceBytes = 64 << 10;
constexpr unsigned kFileMode = 0666, kPartMode = 0600;  // less the umask

// A time on some rank's clock, in nanoseconds: differences of three stay in range.
bool IsPossible(int64_t time_ns) { return time_ns >= 0 && time_ns < int64_t{1} << 61; }

enum class Kind : uint8_t { kStart = 1, kAskTime, kTime, kStop, kPart, kTaken };

}  // namespace

struct TimelineGroup::Message {
  Kind kind = Kind::kStart;
  uint32_t generation = 0;
  int64_t a = 0;     // kStart: what is shown as 0, on rank 0's clock. kAskTime, kTime: when it was asked, on mine
  int64_t b = 0;     // kTime: the answer, on rank 0's clock
  uint8_t flag = 0;  // kStart: mark cycles. kPart: this is the last. kTaken: rank 0 has kept it
  std::string text;  // kStart: path. kPart: lines
};

void TimelineGroup::Send(int to, const Message& message) {
  WireWriter writer;
  writer.Put(ControlType::kTimeline);
  writer.Put(message.kind);
  writer.Put(message.generation);
  writer.Put(message.a);
  writer.Put(message.b);
  writer.Put(message.flag);
  writer.PutText(message.text);
  post_(to, writer.Take());
}

bool TimelineGroup::OnMessage(int from, std::string_view bytes) {
  WireReader reader(bytes);
  Message message;
  (void)reader.Get<ControlType>();
  message.kind = reader.Get<Kind>();
  message.generation = reader.Get<uint32_t>();
  message.a = reader.Get<int64_t>();
  message.b = reader.Get<int64_t>();
  message.flag = reader.Get<uint8_t>();
  message.text = reader.GetText();
  if (!reader.at_end() || !IsPossible(message.a) || !IsPossible(message.b)) return false;
  const bool to_rank_0 = message.kind == Kind::kAskTime || message.kind == Kind::kPart;
  if (to_rank_0 != (topology_.rank() == 0) || (!to_rank_0 && from != 0)) return false;
  switch (message.kind) {
    case Kind::kStart:
      OnStart(message);
      return true;
    case Kind::kAskTime:
      Send(from, {Kind::kTime, message.generation, message.a, NowNs(), 0, ""});
      return true;
    case Kind::kPart:
      OnPart(from, message);
      return true;
    case Kind::kTime:
    case Kind::kStop:
    case Kind::kTaken:
      break;
    default:
      return false;
  }
  if (message.generation != generation_) return true;  // of one that is over here
  if (message.kind == Kind::kTime && asked_ > 0 && mine_.file() == nullptr) OnTime(message);
  if (message.kind == Kind::kStop) FinishPart();
  if (message.kind == Kind::kTaken && sending_) {
    if (message.flag == 0) {
      Done();  // rank 0 has given up: the part stays
    } else {
      SendPiece();
    }
  }
  return true;
}

// --- Rank 0 ---

Status TimelineGroup::Start(const std::string& path, bool mark_cycles) {
  if (topology_.rank() != 0) {
    if (mine_.file() == nullptr) mine_.Record();
    return Status::Ok();
  }
  if (mine_.file() != nullptr) {
    return Status(Code::kInvalidArgument, "A timeline is being written already, to '" + mine_.file()->path() +
                                              "'. Call hvd.stop_timeline() first.");
  }
  SMDDP_ASSIGN_OR_RETURN(auto file, TimelineFile::Create(path, kFileMode));
  ++generation_;
  came_.clear();
  stopping_ = false;
  const int64_t zero_ns = NowNs();
  mine_.Record();
  mine_.WriteTo(std::move(file), zero_ns, mark_cycles);
  for (int rank = 1; rank < topology_.size(); ++rank) {
    Send(rank, {Kind::kStart, generation_, zero_ns, 0, static_cast<uint8_t>(mark_cycles), path});
  }
  return Status::Ok();
}

void TimelineGroup::Stop(std::function<void()> done) {
  if (topology_.rank() != 0) {
    if (generation_ == 0) mine_.Stop();
    return done();
  }
  if (mine_.file() == nullptr || stopping_) return done();
  done_ = std::move(done);
  stopping_ = true;
  for (int rank = 1; rank < topology_.size(); ++rank) Send(rank, {Kind::kStop, generation_, 0, 0, 0, ""});
  mine_.Stop();
  FinishAll();
}

void TimelineGroup::OnPart(int from, const Message& message) {
  const bool wanted = message.generation == generation_ && mine_.file() != nullptr && came_.count(from) == 0;
  const bool kept = wanted && mine_.file()->Append(message.text);
  Send(from, {Kind::kTaken, message.generation, 0, 0, static_cast<uint8_t>(kept), ""});
  if (!wanted) return;
  ++parts_moved_;
  if (!kept || message.flag != 0) came_.insert(from);
  FinishAll();
}

void TimelineGroup::FinishAll() {
  if (!stopping_) return;
  for (int rank = 1; rank < topology_.size(); ++rank) {
    if (came_.count(rank) == 0 && gone_.count(rank) == 0) return;
  }
  Done();
}

std::set<int> TimelineGroup::GiveUp() {
  std::set<int> missing;
  for (int rank = 1; topology_.rank() == 0 && stopping_ && rank < topology_.size(); ++rank) {
    if (came_.count(rank) == 0) missing.insert(rank);
  }
  Done();
  return missing;
}

// --- Other ranks ---

void TimelineGroup::OnStart(const Message& message) {
  if (mine_.file() != nullptr) Done();  // an older one that rank 0 waits for no more
  generation_ = message.generation;
  path_ = message.text;
  mark_cycles_ = message.flag != 0;
  zero_ns_ = message.a;
  asked_ = 0;
  best_round_ns_ = INT64_MAX;
  offset_ns_ = 0;
  stop_wanted_ = sending_ = false;
  mine_.Record();
  if (topology_.node_of(0) == topology_.node_index()) return OpenPart();
  AskTime();
}

void TimelineGroup::AskTime() {
  ++asked_;
  Send(0, {Kind::kAskTime, generation_, NowNs(), 0, 0, ""});
}

void TimelineGroup::OnTime(const Message& message) {
  const int64_t now_ns = NowNs();
  const int64_t round_ns = now_ns - message.a;
  if (round_ns < best_round_ns_) {
    best_round_ns_ = round_ns;
    offset_ns_ = message.b - (message.a + round_ns / 2);
  }
  if (asked_ < kTimesAsked) return AskTime();
  OpenPart();
}

void TimelineGroup::OpenPart() {
  const std::string path = path_ + ".rank" + std::to_string(topology_.rank()) + ".part";
  auto file = TimelineFile::Create(path, kPartMode);
  if (!file.ok()) Log(LogLevel::kDebug, file.status().message() + " This rank's part is kept in memory.");
  mine_.WriteTo(file.ok() ? std::move(*file) : TimelineFile::InMemory(), zero_ns_ - offset_ns_, mark_cycles_);
  if (stop_wanted_) FinishPart();
}

void TimelineGroup::FinishPart() {
  stop_wanted_ = true;
  if (mine_.file() == nullptr || sending_) return;  // OpenPart comes back
  mine_.Stop();
  sending_ = true;
  sent_ = 0;
  SendPiece();
}

// The last one is empty: rank 0's answer to it says that all is safe there.
void TimelineGroup::SendPiece() {
  if (sent_ < 0) {
    mine_.file()->Remove();
    return Done();
  }
  const std::string lines = mine_.file()->Read(&sent_, kPieceBytes);
  if (lines.empty()) sent_ = -1;
  ++parts_moved_;
  Send(0, {Kind::kPart, generation_, 0, 0, static_cast<uint8_t>(lines.empty()), lines});
}

// --- All ---

void TimelineGroup::Leave(std::function<void()> done) {
  if (topology_.rank() == 0) return Stop(std::move(done));
  const bool told = generation_ != 0 && (mine_.recording() || mine_.file() != nullptr);
  if (!told || gone_.count(0) != 0) {
    mine_.Stop();
    return done();
  }
  done_ = std::move(done);
  FinishPart();
}

void TimelineGroup::OnDeparture(int rank) {
  gone_.insert(rank);
  if (topology_.rank() == 0) {
    FinishAll();
  } else if (rank == 0) {
    GiveUp();
  }
}

void TimelineGroup::OnFailure() {
  const bool parts = topology_.rank() == 0 && mine_.file() != nullptr && topology_.size() > 1;
  if (parts) {
    Log(LogLevel::kWarning, "The timeline '" + mine_.file()->path() +
                                "' holds rank 0 only, because the session failed. The other ranks' parts are beside it "
                                "on their hosts: bring them together and run python -m smddp_tf.timeline merge '" +
                                mine_.file()->path() + "'.");
  }
  Done();
}

void TimelineGroup::Done() {
  mine_.Stop();
  mine_.Close();
  stopping_ = sending_ = stop_wanted_ = false;
  if (topology_.rank() != 0) generation_ = 0;
  const auto done = std::exchange(done_, nullptr);
  if (done) done();
}

}  // namespace smddp
