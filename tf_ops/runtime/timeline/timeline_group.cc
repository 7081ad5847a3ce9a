#include "runtime/timeline/timeline_group.h"

#include "core/clock.h"
#include "core/process/log.h"
#include "runtime/control/messages.h"

namespace smddp {
namespace {

constexpr unsigned kFileMode = 0666, kPartMode = 0600;  // less the umask

// A time on some rank's clock, in nanoseconds: differences stay in range.
bool IsPossible(int64_t time_ns) { return time_ns >= 0 && time_ns < int64_t{1} << 62; }

}  // namespace

struct TimelineGroup::Message {
  static constexpr ControlType kType = ControlType::kTimeline;
  enum class Kind : uint8_t { kStart = 1, kStop, kClosed };
  Kind kind = Kind::kStart;
  int64_t epoch_ns = 0;
  int64_t zero_ns = 0;  // this and the rest: of kStart
  bool mark_cycles = false;
  std::string path;

  SMDDP_FIELDS(kind, epoch_ns, zero_ns, mark_cycles, path);
  bool IsWellFormed() const {
    return IsPossible(epoch_ns) && IsPossible(zero_ns) && kind >= Kind::kStart && kind <= Kind::kClosed;
  }
};

Status TimelineGroup::OnMessage(int from, std::string_view bytes) {
  Message message;
  return Decode(bytes, &message) && Read(from, message) ? Status::Ok() : Refused(topology_, from);
}

bool TimelineGroup::Read(int from, const Message& message) {
  const bool to_rank_0 = message.kind == Message::Kind::kClosed;
  if (to_rank_0 != (topology_.rank() == 0) || (!to_rank_0 && from != 0)) return false;
  if (message.kind == Message::Kind::kStart) OnStart(message);
  if (path_.empty() || message.epoch_ns != epoch_ns_) return true;  // of a timeline that is over here
  if (message.kind == Message::Kind::kStop) ClosePart();
  if (message.kind == Message::Kind::kClosed) answered_.insert(from);
  EndWhenAnswered(/*give_up=*/false);
  return true;
}

Status TimelineGroup::Start(const std::string& path, bool mark_cycles) {
  if (topology_.rank() != 0) {
    mine_.Record();
    return Status::Ok();
  }
  const TimelineStart start{NowNs(), EpochNs(), mark_cycles, topology_.host_name(0)};
  SMDDP_RETURN_IF_ERROR(mine_.WriteTo(path, kFileMode, start));
  path_ = path;
  epoch_ns_ = start.epoch_ns;
  answered_.clear();
  bus_.PostToOthers(Encode(Message{Message::Kind::kStart, epoch_ns_, start.zero_ns, mark_cycles, path}));
  return Status::Ok();
}

void TimelineGroup::Stop(bool leaving, Done done) {
  if (topology_.rank() == 0 && !path_.empty()) {
    done_ = std::move(done);
    bus_.PostToOthers(Encode(Message{Message::Kind::kStop, epoch_ns_, 0, false, ""}));
    mine_.Stop();
    return EndWhenAnswered(/*give_up=*/false);
  }
  if (path_.empty()) mine_.Stop();
  if (!path_.empty() && leaving) ClosePart();
  done({});
}

void TimelineGroup::OnStart(const Message& message) {
  if (!path_.empty()) ClosePart();  // an older one for which rank 0 no longer waits
  path_ = message.path;
  epoch_ns_ = message.epoch_ns;
  const bool same_clock = topology_.node_of(0) == topology_.node_index();
  const int64_t zero_ns = same_clock ? message.zero_ns : NowNs() - (EpochNs() - epoch_ns_);
  const std::string part = path_ + ".rank" + std::to_string(topology_.rank()) + ".part";
  const Status status =
      mine_.WriteTo(part, kPartMode, {zero_ns, epoch_ns_, message.mark_cycles, topology_.host_name(topology_.rank())});
  if (status.ok()) return;
  Log(LogLevel::kWarning, "The timeline will not include this rank. ", status.message());
  mine_.Stop();
}

void TimelineGroup::ClosePart() {
  mine_.Stop();
  path_.clear();
  bus_.Post(0, Encode(Message{Message::Kind::kClosed, epoch_ns_, 0, false, ""}));
}

void TimelineGroup::OnDeparture(int rank) {
  gone_.insert(rank);
  if (rank == 0) End({});
  EndWhenAnswered(/*give_up=*/false);
}

void TimelineGroup::OnFailure(const Status&) {
  if (topology_.rank() == 0 && !path_.empty() && topology_.size() > 1) {
    Log(LogLevel::kWarning, "The timeline '", path_,
        "' holds rank 0 only, because the session failed. The other ranks' parts are beside it on their hosts: copy "
        "them beside the file and run python -m smddp_tf.timeline merge '",
        path_, "'.");
  }
  End({});
}

void TimelineGroup::EndWhenAnswered(bool give_up) {
  for (int rank = 1; done_ && rank < topology_.size(); ++rank) {
    if (answered_.count(rank) != 0 || gone_.count(rank) != 0) continue;
    if (!give_up) return;
    Log(LogLevel::kWarning, "The timeline does not include ", NamedWithHost(topology_, rank),
        ", which does not answer.");
  }
  if (done_) End({path_, {answered_.begin(), answered_.end()}});
}

void TimelineGroup::End(TimelineParts parts) {
  mine_.Stop();
  path_.clear();
  if (const Done done = std::exchange(done_, nullptr)) done(std::move(parts));
}

}  // namespace smddp
