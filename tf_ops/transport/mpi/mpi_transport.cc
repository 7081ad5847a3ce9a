#include "transport/mpi/mpi_transport.h"

#include <set>

#include "core/clock.h"
#include "transport/mpi/mpi_status.h"

namespace smddp {
namespace {

constexpr double kCancelSeconds = 1.0;

}  // namespace

Result<Ticket> MpiTransport::Send(int peer, Tag tag, BufferView bytes) {
  MPI_Request request;
  SMDDP_MPI(MPI_Isend(bytes.data, static_cast<int>(bytes.size), MPI_BYTE, peer, static_cast<int>(PackTag(tag)), comm_,
                      &request));
  bytes_sent_ += static_cast<int64_t>(bytes.size);
  requests_.emplace(next_ticket_, Transfer{request, kSending});
  return next_ticket_++;
}

Result<Ticket> MpiTransport::Recv(int peer, Tag tag, BufferView bytes) {
  MPI_Request request;
  SMDDP_MPI(MPI_Irecv(bytes.data, static_cast<int>(bytes.size), MPI_BYTE, peer, static_cast<int>(PackTag(tag)), comm_,
                      &request));
  requests_.emplace(next_ticket_, Transfer{request, static_cast<int>(bytes.size)});
  return next_ticket_++;
}

Result<bool> MpiTransport::Test(Ticket ticket) {
  const auto at = requests_.find(ticket);
  if (at == requests_.end()) return Status(Code::kInternal, "Unknown transfer.");
  int done = 0, came = 0;
  MPI_Status status;
  Transfer& transfer = at->second;
  SMDDP_MPI(MPI_Test(&transfer.request, &done, &status));
  if (!done) return false;
  // A longer message is MPI's error; a shorter one is none to it.
  if (transfer.expected != kSending) SMDDP_MPI(MPI_Get_count(&status, MPI_BYTE, &came));
  const int expected = transfer.expected;
  requests_.erase(at);
  if (expected == kSending || came == expected) return true;
  return Status(Code::kInternal, "Expected a message of " + std::to_string(expected) + " bytes from rank " +
                                     std::to_string(status.MPI_SOURCE) + ", received " + std::to_string(came) + ".");
}

Status MpiTransport::Post(int peer, std::string message) {
  posts_.push_back({std::move(message), MPI_REQUEST_NULL});
  Posted& post = posts_.back();
  SMDDP_MPI(MPI_Isend(post.bytes.data(), static_cast<int>(post.bytes.size()), MPI_BYTE, peer, kLargestTag, comm_,
                      &post.request));
  return Status::Ok();
}

bool MpiTransport::Poll(Message* message) {
  if (control_inbox_.empty()) return false;
  *message = std::move(control_inbox_.front());
  control_inbox_.pop_front();
  return true;
}

Result<bool> MpiTransport::Progress() {
  bool moved = false;
  for (auto post = posts_.begin(); post != posts_.end();) {
    int done = 0;
    SMDDP_MPI(MPI_Test(&post->request, &done, MPI_STATUS_IGNORE));
    post = done ? posts_.erase(post) : std::next(post);
    moved |= done != 0;
  }
  SMDDP_RETURN_IF_ERROR(StartReceiving(&moved));
  SMDDP_RETURN_IF_ERROR(FinishReceiving(&moved));
  return moved;
}

Status MpiTransport::StartReceiving(bool* moved) {
  while (true) {
    int waiting = 0;
    MPI_Message handle;
    MPI_Status status;
    SMDDP_MPI(MPI_Improbe(MPI_ANY_SOURCE, kLargestTag, comm_, &waiting, &handle, &status));
    if (!waiting) return Status::Ok();
    int bytes = 0;
    SMDDP_MPI(MPI_Get_count(&status, MPI_BYTE, &bytes));
    Incoming& incoming = incoming_.emplace_back();
    incoming.message = {status.MPI_SOURCE, std::string(bytes, '\0')};
    SMDDP_MPI(MPI_Imrecv(incoming.message.bytes.data(), bytes, MPI_BYTE, &handle, &incoming.request));
    *moved = true;
  }
}

Status MpiTransport::FinishReceiving(bool* moved) {
  std::set<int> behind;  // senders with an older message that is still arriving
  for (auto incoming = incoming_.begin(); incoming != incoming_.end();) {
    int done = 0;
    const int from = incoming->message.from;
    if (behind.count(from) == 0) SMDDP_MPI(MPI_Test(&incoming->request, &done, MPI_STATUS_IGNORE));
    if (!done) {
      behind.insert(from);
      ++incoming;
      continue;
    }
    control_inbox_.push_back(std::move(incoming->message));
    incoming = incoming_.erase(incoming);
    *moved = true;
  }
  return Status::Ok();
}

bool MpiTransport::Abort() {
  // A receive that stays posted could write into memory its owner has freed: cancel, and wait a moment for MPI to say
  // so (one whose data are on their way cannot be cancelled). Control messages get the same moment to leave.
  for (auto& [ticket, transfer] : requests_) MPI_Cancel(&transfer.request);
  const Deadline deadline = Deadline::After(kCancelSeconds);
  while ((!requests_.empty() || !posts_.empty()) && !deadline.passed()) {
    int done = 0;
    if (!requests_.empty()) {
      MPI_Test(&requests_.begin()->second.request, &done, MPI_STATUS_IGNORE);
      if (done) requests_.erase(requests_.begin());
    } else {
      MPI_Test(&posts_.front().request, &done, MPI_STATUS_IGNORE);
      if (done) posts_.pop_front();
    }
  }
  const bool quiet = requests_.empty();
  requests_.clear();
  // What MPI may still read or write must stay: left to the process's end on purpose.
  if (!posts_.empty()) new std::list<Posted>(std::move(posts_));
  if (!incoming_.empty()) new std::list<Incoming>(std::move(incoming_));
  posts_.clear();
  incoming_.clear();
  return quiet;
}

}  // namespace smddp
