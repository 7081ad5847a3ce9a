// Moves bytes between this process and its peers. It has ranks and tags, but no notion of tensors or reductions.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "core/buffer.h"
#include "core/status.h"

namespace smddp {

// Distinguishes the messages in flight between the same two ranks. Messages of one pair with equal tags are matched
// in the order in which they were sent and received.
struct Tag {
  uint32_t operation = 0;  // which operation: see runtime/control/operation_id.h; at most kMaxOperation
  uint8_t stage = 0;       // which part of it, at most kMaxStage
  uint16_t step = 0;       // which message of that part; transports may keep only its low 3 bits
};
constexpr uint32_t kMaxOperation = (1u << 24) - 1;
// Not a collective: the order of NCCL's calls (collectives/device/nccl_call_order.h). Stage 0 only: the last tag is
// MPI's control tag.
constexpr uint32_t kNcclOrderOperation = kMaxOperation;
constexpr uint8_t kMaxStage = 3;
constexpr int kStepBits = 3;
// A task keeps at most this many consecutive steps of one stage in flight to one peer, so that the transmitted bits
// identify them.
constexpr int kMaxStepsInFlight = 1 << kStepBits;

inline uint32_t PackTag(const Tag& tag) {
  const uint32_t step = tag.step & (kMaxStepsInFlight - 1);
  return (tag.operation << (2 + kStepBits)) | (uint32_t{tag.stage} << kStepBits) | step;
}

using Ticket = uint64_t;

// The maximum length of a control message; the longest describe plans of very many tensors.
constexpr size_t kMaxControlBytes = size_t{256} << 20;

// A control message: small, without a tag, delivered in order per sender.
struct Message {
  int from = -1;
  std::string bytes;
};

// Moves the oldest element of a queue to `*into`; false: it has none.
template <class T>
bool TakeOldest(std::deque<T>* queue, T* into) {
  if (queue->empty()) return false;
  *into = std::move(queue->front());
  queue->pop_front();
  return true;
}
// The same of the queue of that key; a queue goes with its last element.
template <class Queues, class T>
bool TakeOldest(Queues* queues, const typename Queues::key_type& key, T* into) {
  const auto at = queues->find(key);
  if (at == queues->end()) return false;
  TakeOldest(&at->second, into);
  if (at->second.empty()) queues->erase(at);
  return true;
}

// Threads:   one thread, the engine's, makes all calls.
// Ownership: the caller keeps `bytes` alive until Test has said that the ticket is done, or Abort was called.
// Progress:  nothing moves except inside Progress; none of the calls blocks.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual Result<Ticket> Send(int peer, Tag tag, BufferView bytes) = 0;
  virtual Result<Ticket> Recv(int peer, Tag tag, BufferView bytes) = 0;
  // True once, when the transfer is complete; the ticket is then forgotten.
  virtual Result<bool> Test(Ticket ticket) = 0;

  virtual Status Post(int peer, std::string message) = 0;
  virtual bool Poll(Message* message) = 0;

  // `peer` has left and reads nothing any more, so nothing may wait for it.
  virtual void Forget(int peer) = 0;

  // True when data moved. Control messages are seen by Poll.
  virtual Result<bool> Progress() = 0;
  // Are transfers or messages under way that only Progress can complete?
  virtual bool busy() const = 0;
  // Do peers ring this process's doorbell when they send? If not, this process must poll.
  virtual bool rings_doorbell() const = 0;
  // Data handed to other ranks so far, without control messages. Any thread.
  virtual int64_t bytes_sent() const = 0;
  // Peers that have died, as far as the transport knows; each death was reported as an error of Progress or Test.
  virtual std::vector<int> lost() const { return {}; }
  // For how long the kernel of that peer's host has acknowledged nothing, though it was sent something again and again;
  // 0: it has, or nobody knows. A kernel acknowledges also what is sent to a process that is stopped.
  virtual int64_t UnansweredNs(int /*peer*/) { return 0; }
  // Cancels all transfers. True: from now on the transport accesses no memory of callers. False: MPI could not cancel
  // some of them, so the memory of the transfers must be kept. Only Post, Poll, Progress and the destructor may
  // follow.
  virtual bool Abort() = 0;
};

}  // namespace smddp
