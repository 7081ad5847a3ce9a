#include "transport/tcp/tcp_transport.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/clock.h"

namespace smddp {
namespace {

constexpr int kEventsPerTurn = 64;
constexpr double kGoodbyeSeconds = 1.0;
constexpr useconds_t kPauseMicroseconds = 200;

}  // namespace

TcpTransport::TcpTransport(std::shared_ptr<TcpNetwork> network, uint32_t context, std::vector<int> world_ranks)
    : network_(std::move(network)),
      context_(context),
      world_ranks_(std::move(world_ranks)),
      rank_of_(static_cast<size_t>(network_->size()), -1),
      out_(world_ranks_.size(), nullptr),
      events_(epoll_create1(EPOLL_CLOEXEC)) {
  for (size_t rank = 0; rank < world_ranks_.size(); ++rank) rank_of_[world_ranks_[rank]] = static_cast<int>(rank);
}

// --- Links ---

Result<BufferView> TcpTransport::Link::Begin(const FrameHead& head) {
  if (head.tag >= kByeTag) {
    control.resize(head.length);
    return BufferView(control.data(), control.size());
  }
  BufferView into;
  SMDDP_ASSIGN_OR_RETURN(data, owner->arrivals_.Begin(peer, head.tag, head.length, &into));
  return into;
}

void TcpTransport::Link::End(const FrameHead& head) {
  over |= head.tag == kByeTag;
  if (head.tag == kControlTag) owner->control_inbox_.push_back({peer, std::move(control)});
  if (data != nullptr) owner->arrivals_.End(data.get());
  control.clear();
  data = nullptr;
}

TcpTransport::Link* TcpTransport::Add(int peer, Socket socket, const TcpNetwork* network, const Ends& ends) {
  Link& link = links_.emplace_back(this, peer, std::move(socket), network, ends);
  if (out_[peer] == nullptr) out_[peer] = &link;
  Watch(&link, EPOLL_CTL_ADD);
  return &link;
}

void TcpTransport::Watch(Link* link, int operation) {
  epoll_event event = {};
  event.data.ptr = link;
  link->watches_writing = link->awaits_writing();
  event.events = link->watches_writing ? EPOLLIN | EPOLLOUT : EPOLLIN;
  epoll_ctl(events_.file(), operation, link->file(), &event);
}

Result<TcpTransport::Link*> TcpTransport::LinkTo(int peer) {
  if (out_[peer] != nullptr) return out_[peer];
  SMDDP_RETURN_IF_ERROR(Admit());  // it may have opened one
  if (out_[peer] != nullptr) return out_[peer];
  const Ends ends = {context_, static_cast<uint32_t>(network_->rank()), static_cast<uint32_t>(world_ranks_[peer])};
  SMDDP_ASSIGN_OR_RETURN(Socket socket, Socket::Connect(network_->address(world_ranks_[peer])));
  return Add(peer, std::move(socket), network_.get(), ends);
}

Status TcpTransport::Admit() {
  for (TcpNetwork::Accepted& accepted : network_->Take(context_)) {
    const int peer = rank_of_[accepted.from];
    if (peer < 0) return OtherVersion("A rank that is not of this process set has connected");
    Add(peer, std::move(accepted.socket), nullptr, {});
  }
  return Status::Ok();
}

Status TcpTransport::Write(Link* link) {
  std::vector<Ticket> sent;
  const Status written = link->Write(&sent);
  for (const Ticket ticket : sent) sending_.erase(ticket);
  SMDDP_RETURN_IF_ERROR(written);
  if (link->awaits_writing() != link->watches_writing) Watch(link, EPOLL_CTL_MOD);
  return Status::Ok();
}

Status TcpTransport::Queue(int peer, Frame frame) {
  SMDDP_ASSIGN_OR_RETURN(Link* const link, LinkTo(peer));
  link->Add(std::move(frame));
  const Status written = Write(link);
  return written.ok() ? written : Drop(link, written);
}

Status TcpTransport::Drop(Link* link, const Status& why) {
  const int peer = link->peer;
  if (link->over) forgotten_.insert(peer);
  const bool expected = aborted_ || forgotten_.count(peer) != 0;
  if (out_[peer] == link) out_[peer] = nullptr;
  links_.remove_if([link](const Link& each) { return &each == link; });
  if (expected) return Status::Ok();
  if (why.reason() == Reason::kPeerLost && !lost_.insert(peer).second) return Status::Ok();  // reported
  return Status(why.reason(), "Rank ", world_ranks_[peer], ": ", why.message(), ".");
}

// --- Transfers ---

Result<Ticket> TcpTransport::Send(int peer, Tag tag, BufferView bytes) {
  const Ticket ticket = next_ticket_++;
  Frame frame = {{PackTag(tag), static_cast<uint32_t>(bytes.size)}, bytes, /*owned=*/{}, ticket};
  sending_.insert(ticket);
  bytes_sent_ += static_cast<int64_t>(bytes.size);
  // Never complete where the peer has left: the engine ends what needs it.
  if (forgotten_.count(peer) == 0) SMDDP_RETURN_IF_ERROR(Queue(peer, std::move(frame)));
  return ticket;
}

Result<Ticket> TcpTransport::Recv(int peer, Tag tag, BufferView bytes) {
  const Ticket ticket = next_ticket_++;
  SMDDP_RETURN_IF_ERROR(arrivals_.Ask(ticket, peer, PackTag(tag), bytes));
  return ticket;
}

Result<bool> TcpTransport::Test(Ticket ticket) {
  if (arrivals_.Has(ticket)) return arrivals_.Take(ticket);
  return sending_.count(ticket) == 0;
}

Status TcpTransport::Post(int peer, std::string message) {
  if (lost_.count(peer) != 0 || forgotten_.count(peer) != 0) return Status::Ok();
  return Queue(peer, {{kControlTag, static_cast<uint32_t>(message.size())}, /*body=*/{}, std::move(message), 0});
}

Result<bool> TcpTransport::Serve(Link* link, uint32_t events) {
  bool moved = false;
  Status status;
  if ((events & EPOLLOUT) != 0) status = Write(link);
  if (status.ok() && (events & ~EPOLLOUT) != 0) {
    const Result<bool> read = link->Read();
    status = read.status();
    moved = read.ok() && *read;
  }
  if (status.ok() && link->over) status = Status(Reason::kPeerLeft, "it has ended its connection");
  if (status.ok() && link->awaits_writing()) status = Write(link);  // what waited for the handshake
  if (!status.ok()) SMDDP_RETURN_IF_ERROR(Drop(link, status));
  return moved;
}

Result<bool> TcpTransport::Progress() {
  SMDDP_RETURN_IF_ERROR(Admit());
  epoll_event events[kEventsPerTurn];
  const int count = links_.empty() ? 0 : epoll_wait(events_.file(), events, kEventsPerTurn, 0);
  bool moved = false;
  Status first;
  for (int i = 0; i < count; ++i) {
    const Result<bool> served = Serve(static_cast<Link*>(events[i].data.ptr), events[i].events);
    if (first.ok()) first = served.status();
    moved |= served.ok() && *served;
  }
  SMDDP_RETURN_IF_ERROR(first);
  return moved;
}

bool TcpTransport::busy() const {
  const auto sends = [](const Link& link) { return link.sends(); };
  return !sending_.empty() || !arrivals_.empty() || std::any_of(links_.begin(), links_.end(), sends);
}

// --- The end ---

bool TcpTransport::Abort() {
  aborted_ = true;
  for (auto next = links_.begin(); next != links_.end();) {
    Link& link = *next++;
    if (link.UnansweredNs() > kGoodbyeSeconds * 1e9) {
      lost_.insert(link.peer);
      (void)Drop(&link, Status::Ok());
      continue;
    }
    link.DropData();
    if (link.data == nullptr || link.data->kept != nullptr) continue;
    link.data->kept.reset(new std::byte[link.rest()]);
    link.ReadRestInto(link.data->kept.get());
  }
  sending_.clear();
  arrivals_.Clear();
  return true;
}

// Data that nobody reads would make the system reset a connection, with messages that the peer has not read yet: so
// this side reads until the other one has closed it.
TcpTransport::~TcpTransport() {
  (void)Abort();
  for (auto next = links_.begin(); next != links_.end();) {
    Link* const link = &*next++;
    link->Add({{kByeTag, 0}, {}, {}, 0});
    const Status written = Write(link);
    if (!written.ok()) (void)Drop(link, written);
  }
  const Deadline deadline = Deadline::After(kGoodbyeSeconds);
  while (!links_.empty() && !deadline.passed()) {
    for (const Link& link : links_) {
      if (!link.sends()) link.EndSending();
    }
    const Result<bool> moved = Progress();
    if (!moved.ok() || !*moved) usleep(kPauseMicroseconds);
  }
}

}  // namespace smddp
