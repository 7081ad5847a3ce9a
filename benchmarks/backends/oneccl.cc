// oneCCL's allreduce of float32 in host memory, for ctypes. Built by envs.sh into the environment of the peer.
// Errors: an exception of oneCCL ends the process; the orchestrator notes it and leaves the candidate out.
#include <cstddef>
#include <cstring>
#include <memory>
#include <oneapi/ccl.hpp>
#include <optional>

namespace {
std::shared_ptr<ccl::kvs> store;
std::optional<ccl::communicator> communicator;
}  // namespace

extern "C" {

// Rank 0 fills `address` (256 bytes), which the other ranks then receive.
void oneccl_address(char* address) {
  ccl::init();
  store = ccl::create_main_kvs();
  std::memcpy(address, store->get_address().data(), ccl::kvs::address_max_size);
}

void oneccl_open(const char* address, int rank, int ranks) {
  if (rank != 0) {
    ccl::init();
    ccl::kvs::address_type copy;
    std::memcpy(copy.data(), address, ccl::kvs::address_max_size);
    store = ccl::create_kvs(copy);
  }
  communicator.emplace(ccl::create_communicator(ranks, rank, store));
}

void oneccl_allreduce(const float* from, float* to, size_t elements) {
  ccl::allreduce(from, to, elements, ccl::reduction::sum, *communicator).wait();
}

void oneccl_close() {
  communicator.reset();
  store.reset();
}
}
