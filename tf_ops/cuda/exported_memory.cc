#include "cuda/exported_memory.h"

#include <unistd.h>

#include <random>

#include "core/wire.h"

namespace smddp {

std::string Encode(const ExportedMemory& memory) {
  WireWriter writer;
  writer.PutText(memory.process);
  writer.PutText(memory.uuid);
  writer.Put(memory.handle);
  return writer.Take();
}

Status Decode(const std::string& text, ExportedMemory* memory) {
  WireReader reader(text);
  memory->process = reader.GetText();
  memory->uuid = reader.GetText();
  memory->handle = reader.Get<cudaIpcMemHandle_t>();
  if (reader.at_end()) return Status::Ok();
  return Status(Reason::kBadArgument,
                "Another rank sent an unreadable export handle of its GPU memory. Install the same version of smddp_tf "
                "on all ranks.");
}

const std::string& ThisProcess() {
  static const std::string name = [] {
    std::random_device random;
    return std::to_string(getpid()) + "-" + std::to_string(random()) + std::to_string(random());
  }();
  return name;
}

}  // namespace smddp
