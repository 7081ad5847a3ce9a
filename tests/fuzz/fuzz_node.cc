// Shared memory that a mate writes into as it likes: notes, counters, slots.
#include <algorithm>
#include <cstring>

#include "fuzz/input.h"
#include "topology/topology.h"
#include "transport/shm/node_channel.h"
#include "transport/shm/node_transport.h"
#include "transport/shm/segment.h"

namespace {

constexpr int kMembers = 2;

void WriteNote(fuzz::Input* input, const smddp::NodeLayout& layout, std::byte* segment) {
  smddp::NoteRing& ring = *layout.inbox(segment, 1);
  const uint8_t kind = input->Take<uint8_t>();
  smddp::SlotNote note;
  note.tag = smddp::PackTag({kind & 1u, 0, 0});
  note.bytes = input->Take<uint8_t>() % 8 == 0 ? input->Take<uint32_t>() : input->Take<uint16_t>() % 4200;
  note.slot = input->Take<uint8_t>() % 8 == 0 ? input->Take<uint16_t>() : input->Take<uint8_t>() % 32;
  note.last = kind & 2;
  if (kind & 8) {
    note.first_extent = input->Take<uint8_t>() % 4;
    note.extents = input->Take<uint8_t>() % 8 == 0 ? input->Take<uint16_t>() : input->Take<uint8_t>() % 4;
  }
  const uint32_t at = ring.written;
  ring.notes[at % smddp::NoteRing::kPlaces] = note;
  ring.written = input->Take<uint8_t>() % 16 == 0 ? input->Take<uint32_t>() : at + 1;
  if (kind % 16 == 8) layout.inbox(segment, 0)->read = input->Take<uint32_t>();
  layout.readers(segment, 0)->fetch_add(1);
}

// The mate's slot of a note that is already there, with a table that mostly makes sense.
void WriteExtents(fuzz::Input* input, const smddp::NodeLayout& layout, std::byte* segment) {
  const int slot = input->Take<uint8_t>() % 24;
  std::byte* const end = layout.slot(segment, slot) + layout.capacity_of(slot);
  for (int i = 1; i <= 4; ++i) {
    smddp::Extent extent;
    extent.offset = input->Take<uint8_t>() % 8 == 0 ? input->Take<uint64_t>() : input->Take<uint16_t>() % 4200;
    extent.bytes = input->Take<uint8_t>() % 8 == 0 ? input->Take<uint32_t>() : input->Take<uint16_t>() % 4200;
    extent.of_tensor = input->Take<uint8_t>() % 2;
    std::memcpy(end - i * sizeof(extent), &extent, sizeof(extent));
  }
}

// Kept for the next input.
std::vector<std::byte*> Segments(const smddp::NodeLayout& layout) {
  std::vector<std::byte*> segments;
  for (int member = 0; member < kMembers; ++member) {
    static auto* kept = new std::vector<std::unique_ptr<smddp::Segment>>;
    kept->push_back(std::move(*smddp::Segment::Private(layout.total_bytes)));
    segments.push_back(kept->back()->data());
  }
  return segments;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const smddp::NodeLayout layout(kMembers, kMembers, 4096);
  static const std::vector<std::byte*> segments = Segments(layout);
  for (std::byte* segment : segments) std::fill(segment, layout.slot(segment, 0), std::byte{0});
  const smddp::Topology topology = *smddp::Topology::Build(0, {"a", "a"});
  static std::vector<std::byte> tensors(kMembers * 4096);
  const std::vector<smddp::BufferView> shared = {{tensors.data(), 4096}, {tensors.data() + 4096, 4096}};
  smddp::NodeChannel channel(0, layout, segments, shared);
  smddp::NodeTransport transport(topology.node(), channel);
  std::vector<char> into(20000), out(5000);
  (void)transport.Recv(1, {0, 0, 0}, {into.data(), into.size()}).ok();
  while (!input.empty()) {
    if (input.Take<uint8_t>() % 4 == 0) WriteExtents(&input, layout, segments[1]);
    WriteNote(&input, layout, segments[0]);
    const uint8_t then = input.Take<uint8_t>();
    if (then % 4 == 0) (void)transport.Send(1, {1, 0, 0}, {out.data(), out.size()}).ok();
    if (then % 4 == 1) (void)transport.Post(1, std::string(then, 'x')).ok();
    if (then % 4 == 2) layout.readers(segments[0], then % 32)->store(input.Take<uint8_t>() % 3);
    if (!transport.Progress().ok()) break;
    smddp::Message message;
    while (transport.Poll(&message)) {
    }
    smddp::Loan loan;
    if (channel.Take(1, {1, 0, 0}, &loan, then % 2 == 0)) {
      size_t sum = 0;  // reads what the channel has accepted
      for (const smddp::Loan::Part& part : loan.parts) {
        for (size_t i = 0; i < part.memory.size; ++i) sum += static_cast<size_t>(part.memory.data[i]);
      }
      static volatile size_t read;
      read = sum;
      channel.Return(loan);
    }
    if (then % 8 == 7) (void)channel.Evacuate();
  }
  return 0;
}
