#include "transport/tcp/tcp_communicator.h"

#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/wire.h"

namespace smddp {
namespace {

constexpr useconds_t kPauseMicroseconds = 100;
// The others wait longer than rank 0, which tells them who is missing.
constexpr double kAnswerSeconds = 3.0;
// Then a rank that is missing may have died before it connected: a connection to it says so.
constexpr double kQuietSeconds = 1.0;

// What rank 0 answers: everybody's texts, or why there are none.
struct Answer {
  Status status;
  std::vector<std::string> texts;

  SMDDP_FIELDS(status, texts);
};

}  // namespace

TcpCommunicator::TcpCommunicator(std::shared_ptr<TcpNetwork> network, int number, const char* what,
                                 std::vector<int> world_ranks)
    : network_(std::move(network)), number_(number), what_(what), world_ranks_(std::move(world_ranks)) {
  rank_ =
      static_cast<int>(std::find(world_ranks_.begin(), world_ranks_.end(), network_->rank()) - world_ranks_.begin());
  start_ = MakeTransport(/*for_engine=*/false);
}

Result<std::unique_ptr<Communicator>> TcpCommunicator::Open(const World& world) {
  SMDDP_ASSIGN_OR_RETURN(auto network, TcpNetwork::Start(world));
  std::vector<int> all(world.addresses.size());
  std::iota(all.begin(), all.end(), 0);
  return std::unique_ptr<Communicator>(
      new TcpCommunicator(std::move(network), /*number=*/0, "hvd.init()", std::move(all)));
}

Result<std::unique_ptr<Communicator>> TcpCommunicator::Subset(const std::vector<int>& ranks, int number,
                                                              const char* what, const Deadline&) const {
  std::vector<int> world_ranks;
  for (const int rank : ranks) world_ranks.push_back(world_ranks_[rank]);
  return std::unique_ptr<Communicator>(new TcpCommunicator(network_, number, what, std::move(world_ranks)));
}

std::unique_ptr<TcpTransport> TcpCommunicator::MakeTransport(bool for_engine) const {
  const auto context = static_cast<uint32_t>(2 * number_ + (for_engine ? 1 : 0));
  return std::make_unique<TcpTransport>(network_, context, world_ranks_);
}

std::string TcpCommunicator::TooLate(const std::vector<bool>& came) const {
  if (rank_ != 0) {
    return Concat("Rank ", world_ranks_[0], " did not answer in ", what_, " in time (SMDDP_START_TIMEOUT).");
  }
  std::string ranks;
  for (size_t rank = 0; rank < came.size(); ++rank) {
    if (!came[rank]) ranks += (ranks.empty() ? "" : ", ") + std::to_string(world_ranks_[rank]);
  }
  return "Not every rank reached " + what_ + " in time (SMDDP_START_TIMEOUT): missing on rank " + ranks +
         ". Check that all ranks call hvd.init() and that their hosts can reach one another.";
}

Result<Message> TcpCommunicator::Receive(const std::vector<bool>& came, const Deadline& deadline) {
  Message message;
  const Deadline quiet = Deadline::After(kQuietSeconds);
  while (!start_->Poll(&message)) {
    SMDDP_RETURN_IF_ERROR(start_->Progress().status());
    if (start_->Poll(&message)) break;
    for (size_t rank = 0; rank < came.size(); ++rank) {
      if (came[rank]) continue;
      if (start_->has_left(static_cast<int>(rank))) {
        return Status(Reason::kPeerLeft, "Rank ", world_ranks_[rank], " gave up in ", what_,
                      ". Its own output says why.");
      }
      if (quiet.passed()) SMDDP_RETURN_IF_ERROR(start_->Connect(static_cast<int>(rank)));
    }
    if (deadline.passed()) return Status(Reason::kTimedOut, TooLate(came));
    usleep(kPauseMicroseconds);
  }
  return message;
}

Result<std::vector<std::string>> TcpCommunicator::Collect(const std::string& mine, const Deadline& deadline) {
  std::vector<std::string> texts(world_ranks_.size());
  std::vector<bool> came(world_ranks_.size(), false);
  std::vector<Message> next;
  const auto use = [&](Message message) {
    if (came[message.from]) return next.push_back(std::move(message));  // a fast rank's of the next exchange
    came[message.from] = true;
    texts[message.from] = std::move(message.bytes);
  };
  use({0, mine});
  for (Message& message : std::exchange(early_, {})) use(std::move(message));
  while (std::count(came.begin(), came.end(), false) != 0) {
    SMDDP_ASSIGN_OR_RETURN(Message message, Receive(came, deadline));
    use(std::move(message));
  }
  early_ = std::move(next);
  return texts;
}

Status TcpCommunicator::Flush(const Deadline& deadline) {
  while (start_->busy()) {
    SMDDP_RETURN_IF_ERROR(start_->Progress().status());
    if (deadline.passed()) return Status(Reason::kTimedOut, "Some rank reads nothing in ", what_, ".");
    usleep(kPauseMicroseconds);
  }
  return Status::Ok();
}

Result<std::vector<std::string>> TcpCommunicator::Exchange(const std::string& mine, const Deadline& deadline) {
  if (rank_ == 0) {
    Result<std::vector<std::string>> texts = Collect(mine, deadline);
    const Answer answer = {texts.status(), texts.ok() ? *texts : std::vector<std::string>()};
    for (int rank = 1; rank < static_cast<int>(world_ranks_.size()); ++rank) {
      const Status posted = start_->Post(rank, Encode(answer));
      if (texts.ok()) SMDDP_RETURN_IF_ERROR(posted);
    }
    const Status flushed = Flush(Deadline::After(kAnswerSeconds));
    if (texts.ok()) SMDDP_RETURN_IF_ERROR(flushed);
    return texts;
  }
  SMDDP_RETURN_IF_ERROR(start_->Post(0, mine));
  const Deadline longer = Deadline::After(deadline.left().count() * 1e-9 + kAnswerSeconds);
  std::vector<bool> came(world_ranks_.size(), true);
  came[0] = false;
  SMDDP_ASSIGN_OR_RETURN(const Message message, Receive(came, longer));
  Answer answer;
  if (!Decode(message.bytes, &answer)) return OtherVersion("The answer of rank 0 in ", what_);
  SMDDP_RETURN_IF_ERROR(answer.status);
  return std::move(answer.texts);
}

}  // namespace smddp
