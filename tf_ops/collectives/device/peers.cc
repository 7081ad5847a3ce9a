#include "collectives/device/peers.h"

#include <cstring>
#include <random>

namespace smddp {
namespace {

// Ranks may be threads of one process; memory of the own process needs no import and cannot be imported. Process ids
// do not identify the process: containers have their own numbering.
uint64_t ThisProcess() {
  static const uint64_t number = [] {
    std::random_device random;
    return (uint64_t{random()} << 32) | random();
  }();
  return number;
}

Status Unreadable(int rank) {
  return Status(Reason::kInternal,
                "Rank " + std::to_string(rank) +
                    " sent an invalid description of its GPU memory. Do all ranks run the same version "
                    "of smddp_tf?");
}

BufferView BytesOf(PeerNote* note) { return {note, sizeof(PeerNote)}; }

}  // namespace

Result<PeerNote> Peers::NoteOf(BufferLease* memory) const {
  SMDDP_ASSIGN_OR_RETURN(const std::string exported, memory->Export());
  PeerNote note;
  if (exported.size() > PeerNote::kMaxExported) {
    return Status(Reason::kInternal, "The export handle of GPU memory has " + std::to_string(exported.size()) +
                                         " bytes; expected at most " + std::to_string(PeerNote::kMaxExported) + ".");
  }
  note.process = ThisProcess();
  note.address = reinterpret_cast<uint64_t>(memory->data());
  note.block = memory->number();
  note.exported_bytes = static_cast<uint32_t>(exported.size());
  std::memcpy(note.exported, exported.data(), exported.size());
  return note;
}

Result<std::byte*> Peers::Open(int rank, const PeerNote& note) {
  if (note.process == ThisProcess()) return reinterpret_cast<std::byte*>(note.address);
  if (note.exported_bytes > PeerNote::kMaxExported) return Unreadable(rank);
  const std::string exported(note.exported, note.exported_bytes);
  const auto key = std::make_pair(rank, note.block);
  const auto at = imported_.find(key);
  if (at != imported_.end() && at->second.exported == exported) return static_cast<std::byte*>(at->second.memory);
  if (at != imported_.end()) return Unreadable(rank);  // a block is exported once
  SMDDP_ASSIGN_OR_RETURN(void* const memory, device_.Import(exported));
  imported_[key] = {exported, memory};
  return static_cast<std::byte*>(memory);
}

void Peers::Close() {
  for (const auto& [key, imported] : imported_) device_.Unimport(imported.memory);
  imported_.clear();
}

Status PeerNotes::Send(int member, const PeerNote& note) {
  One& one = sent_.emplace_back(fabric_.transport, member);
  one.note = note;
  return one.transfers.Send(fabric_.topology.node().world_rank(member), tag_, BytesOf(&one.note));
}

Status PeerNotes::Expect(int member) {
  One& one = expected_.emplace_back(fabric_.transport, member);
  return one.transfers.Recv(fabric_.topology.node().world_rank(member), tag_, BytesOf(&one.note));
}

Result<bool> PeerNotes::ForEachNew(const std::function<Status(int member, const PeerNote& note)>& visit) {
  bool some = false;
  for (auto at = expected_.begin(); at != expected_.end();) {
    SMDDP_ASSIGN_OR_RETURN(const bool here, at->transfers.AllDone());
    if (!here) {
      ++at;
      continue;
    }
    SMDDP_RETURN_IF_ERROR(visit(at->member, at->note));
    at = expected_.erase(at);
    some = true;
  }
  return some;
}

Result<bool> PeerNotes::Sent() {
  while (!sent_.empty()) {
    SMDDP_ASSIGN_OR_RETURN(const bool gone, sent_.front().transfers.AllDone());
    if (!gone) return false;
    sent_.pop_front();
  }
  return true;
}

std::string PeerNotes::Describe() const {
  return expected_.empty() ? "waiting for the GPU" : expected_.front().transfers.Describe();
}

}  // namespace smddp
