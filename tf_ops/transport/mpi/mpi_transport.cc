#include "transport/mpi/mpi_transport.h"

#include "core/clock.h"
#include "transport/mpi/losses.h"
#include "transport/mpi/mpi_life.h"

namespace smddp {
namespace {

constexpr double kCancelSeconds = 1.0;

}  // namespace

#define SMDDP_CHECKED(call) SMDDP_RETURN_IF_ERROR(Check((call), #call))

// Where MPI reports losses, the first error of each loss names the dead ranks, and calls that concern other ranks
// work again.
Status MpiTransport::Check(int code, const char* call) {
  if (code == MPI_SUCCESS || !MeansLoss(code)) return MpiStatus(code, call);
  for (const int peer : TakeLosses(comms_[0])) {
    if (!lost_.insert(peer).second) continue;
    return Status(Reason::kPeerLost, "MPI reports that rank ", peer, " has died.");
  }
  return MpiStatus(code, call);
}

Result<Ticket> MpiTransport::Send(int peer, Tag tag, BufferView bytes) {
  MPI_Request request;
  const uint32_t packed = PackTag(tag);
  SMDDP_CHECKED(MPI_Isend(bytes.data, static_cast<int>(bytes.size), MPI_BYTE, peer, tags_.MpiTagOf(packed),
                          CommOf(packed), &request));
  bytes_sent_ += static_cast<int64_t>(bytes.size);
  requests_.emplace(next_ticket_, Transfer{request, kSending});
  return next_ticket_++;
}

Result<Ticket> MpiTransport::Recv(int peer, Tag tag, BufferView bytes) {
  MPI_Request request;
  const uint32_t packed = PackTag(tag);
  SMDDP_CHECKED(MPI_Irecv(bytes.data, static_cast<int>(bytes.size), MPI_BYTE, peer, tags_.MpiTagOf(packed),
                          CommOf(packed), &request));
  requests_.emplace(next_ticket_, Transfer{request, static_cast<int>(bytes.size)});
  return next_ticket_++;
}

Result<bool> MpiTransport::Test(Ticket ticket) {
  const auto at = requests_.find(ticket);
  if (at == requests_.end()) return Status(Reason::kInternal, "Unknown transfer.");
  int done = 0, received = 0;
  MPI_Status status;
  const int expected = at->second.expected;
  const int code = MPI_Test(&at->second.request, &done, &status);
  if (done || code != MPI_SUCCESS) requests_.erase(at);
  SMDDP_RETURN_IF_ERROR(Check(code, "MPI_Test"));
  if (!done || expected == kSending) return done != 0;
  // MPI reports a longer message as an error, but not a shorter one.
  SMDDP_CHECKED(MPI_Get_count(&status, MPI_BYTE, &received));
  if (received == expected) return true;
  return Status(Reason::kInternal, "Expected a message of ", expected, " bytes from rank ", status.MPI_SOURCE,
                ", received ", received, ".");
}

Status MpiTransport::Post(int peer, std::string message) {
  if (lost_.count(peer) != 0) return Status::Ok();
  Control& post = posts_.emplace_back();
  post.message.bytes = std::move(message);
  const int code = MPI_Isend(post.message.bytes.data(), static_cast<int>(post.message.bytes.size()), MPI_BYTE, peer,
                             tags_.MpiTagOf(TagSplit::kControl), CommOf(TagSplit::kControl), &post.request);
  if (code != MPI_SUCCESS) posts_.pop_back();
  return Check(code, "MPI_Isend");
}

Result<bool> MpiTransport::Progress() {
  SMDDP_RETURN_IF_ERROR(TestPosts());
  SMDDP_RETURN_IF_ERROR(StartReceiving());
  SMDDP_RETURN_IF_ERROR(FinishReceiving());
  return false;  // Test reports the data that moved
}

Status MpiTransport::TestPosts() {
  for (auto post = posts_.begin(); post != posts_.end();) {
    int done = 0;
    const int code = MPI_Test(&post->request, &done, MPI_STATUS_IGNORE);
    const bool over = done || code != MPI_SUCCESS;
    post = over ? posts_.erase(post) : std::next(post);
    SMDDP_RETURN_IF_ERROR(Check(code, "MPI_Test"));
  }
  return Status::Ok();
}

Status MpiTransport::StartReceiving() {
  while (true) {
    int waiting = 0;
    MPI_Message handle;
    MPI_Status status;
    SMDDP_CHECKED(MPI_Improbe(MPI_ANY_SOURCE, tags_.MpiTagOf(TagSplit::kControl), CommOf(TagSplit::kControl), &waiting,
                              &handle, &status));
    if (!waiting) return Status::Ok();
    int bytes = 0;
    SMDDP_CHECKED(MPI_Get_count(&status, MPI_BYTE, &bytes));
    Control& incoming = incoming_.emplace_back();
    incoming.message = {status.MPI_SOURCE, std::string(bytes, '\0')};
    SMDDP_CHECKED(MPI_Imrecv(incoming.message.bytes.data(), bytes, MPI_BYTE, &handle, &incoming.request));
  }
}

Status MpiTransport::FinishReceiving() {
  std::set<int> behind;  // senders with an older message that is still arriving
  for (auto incoming = incoming_.begin(); incoming != incoming_.end();) {
    int done = 0;
    const int from = incoming->message.from;
    if (behind.count(from) == 0) {
      const int code = MPI_Test(&incoming->request, &done, MPI_STATUS_IGNORE);
      if (code != MPI_SUCCESS) {
        incoming_.erase(incoming);
        return Check(code, "MPI_Test");
      }
    }
    if (!done) {
      behind.insert(from);
      ++incoming;
      continue;
    }
    control_inbox_.push_back(std::move(incoming->message));
    incoming = incoming_.erase(incoming);
  }
  return Status::Ok();
}

bool MpiTransport::Abort() {
  // A receive that stays posted could write into memory that its owner has freed: cancel it, and wait a moment for
  // MPI's confirmation (a receive whose data are arriving cannot be cancelled). Control messages get the same time to
  // leave.
  for (auto& [ticket, transfer] : requests_) MPI_Cancel(&transfer.request);
  const Deadline deadline = Deadline::After(kCancelSeconds);
  while ((!requests_.empty() || !posts_.empty()) && !deadline.passed()) {
    int done = 0;  // or completed with an error
    if (!requests_.empty()) {
      const int code = MPI_Test(&requests_.begin()->second.request, &done, MPI_STATUS_IGNORE);
      if (done || code != MPI_SUCCESS) requests_.erase(requests_.begin());
    } else {
      const int code = MPI_Test(&posts_.front().request, &done, MPI_STATUS_IGNORE);
      if (done || code != MPI_SUCCESS) posts_.pop_front();
    }
  }
  const bool quiet = requests_.empty();
  requests_.clear();
  // Memory that MPI may still read or write is leaked on purpose, until the process ends.
  posts_.splice(posts_.end(), incoming_);
  if (!posts_.empty()) new std::list<Control>(std::move(posts_));
  posts_.clear();
  return quiet;
}

#undef SMDDP_CHECKED

}  // namespace smddp
