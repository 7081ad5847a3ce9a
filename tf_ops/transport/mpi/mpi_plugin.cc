// What libsmddp_mpi.so exports.
#include "transport/mpi/mpi_communicator.h"
#include "transport/mpi/mpi_life.h"
#include "transport/mpi_library.h"

namespace smddp {
namespace {

class Mpi : public MpiLibrary {
  Result<std::unique_ptr<Communicator>> Open(const void* communicator, const std::vector<int>& ranks, double silence_s,
                                             const Deadline& deadline) override {
    return MpiCommunicator::Open(communicator, ranks, silence_s, deadline);
  }
  void Abandon() override { AbandonMpi(); }
  bool is_abandoned() const override { return MpiIsAbandoned(); }
  bool ends_at_exit() const override { return MpiEndsAtExit(); }
  void EndLast() override { MpiEndLast(); }
  bool is_initialized() const override { return MpiIsInitialized(); }
  bool has_thread_multiple() const override { return MpiHasThreadMultiple(); }
  bool survives_losses() const override { return MpiGoesOnAfterLosses(); }
  const char* version_text() const override { return MpiVersionText(); }
};

}  // namespace
}  // namespace smddp

extern "C" __attribute__((visibility("default"))) smddp::MpiLibrary* smddp_make_mpi_library(int version) {
  static smddp::Mpi* const library = new smddp::Mpi();
  return version == smddp::kMpiLibraryVersion ? library : nullptr;
}
