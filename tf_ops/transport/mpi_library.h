// MPI, in a library of its own that is loaded where MPI started the process (libsmddp_mpi.so): no other process needs
// an MPI, and one wheel works with several.
//
// Threads: any. Ownership: it lives as long as the process.
#pragma once

#include <memory>
#include <vector>

#include "core/clock.h"
#include "core/status.h"
#include "transport/communicator.h"

namespace smddp {

// By itself: where no MPI is loaded.
class MpiLibrary {
 public:
  virtual ~MpiLibrary() = default;
  // Initialises MPI unless it is initialised already. `communicator` points to an MPI_Comm of the caller or is null;
  // `ranks` selects world ranks (empty: all). Collective over the ranks that take part.
  virtual Result<std::unique_ptr<Communicator>> Open(const void*, const std::vector<int>&, const Deadline&) {
    return Status(Reason::kInternal, "The session needs MPI, which has not been loaded.");
  }
  // A rank is lost or ends on its own, so MPI_Finalize would not return: the process ends without it, with an exit code
  // other than 0. Open undoes it.
  virtual void Abandon() {}
  virtual bool is_abandoned() const { return false; }
  // Does MPI end with the process, because this library has initialised it?
  virtual bool ends_at_exit() const { return false; }
  // This process ends a moment after the others have finalised MPI: the first process that ends determines the job's
  // exit code.
  virtual void EndLast() {}
  virtual bool is_initialized() const { return false; }
  virtual bool has_thread_multiple() const { return true; }
  virtual const char* version_text() const { return ""; }  // also before MPI is initialised
};

// Increase it whenever this interface or Communicator's changes. A library of another version returns null.
constexpr int kMpiLibraryVersion = 4;
// The function that the library exports.
using MakeMpiLibrary = MpiLibrary*(int version);
constexpr char kMakeMpiLibrary[] = "smddp_make_mpi_library";

}  // namespace smddp
