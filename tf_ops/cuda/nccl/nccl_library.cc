#include "cuda/nccl/nccl_library.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cuda/nccl/nccl_abi.h"
#include "cuda/nccl/nccl_errors.h"
#include "cuda/nccl/nccl_group.h"

namespace smddp {
namespace {

constexpr char kName[] = "libnccl.so.2";

class NcclLibrary final : public DeviceGroupLibrary {
 public:
  NcclLibrary(const nccl::Api& api, int version) : api_(api), version_(version) {}

  int version() const override { return version_; }

  Result<std::string> MakeId() override {
    nccl::UniqueId id = {};
    SMDDP_RETURN_IF_ERROR(NcclStatus(api_, "ncclGetUniqueId", api_.GetUniqueId(&id), nullptr));
    return std::string(id.bytes, sizeof id.bytes);
  }

  Result<std::unique_ptr<DeviceGroup>> Join(const std::string& id, int size, int member, Device& device) override {
    nccl::UniqueId unique = {};
    if (size < 1 || member < 0 || member >= size || id.size() != sizeof unique.bytes) {
      return Status(Reason::kBadArgument, "NCCL cannot join as member ", member, " of ", size, " with an id of ",
                    id.size(), " bytes.");
    }
    std::memcpy(unique.bytes, id.data(), id.size());
    auto group = std::make_unique<NcclGroup>(api_, size, member, device);
    SMDDP_RETURN_IF_ERROR(group->Join(unique));
    return std::unique_ptr<DeviceGroup>(std::move(group));
  }

 private:
  const nccl::Api& api_;
  const int version_;
};

// The folder of packages that a file lies in: ".../site-packages/", or "".
std::string PackagesAround(const std::string& file) {
  for (const char* const name : {"/site-packages/", "/dist-packages/"}) {
    const size_t at = file.rfind(name);
    if (at != std::string::npos) return file.substr(0, at + std::strlen(name));
  }
  return "";
}

// Where the wheel would be, nearest first.
std::vector<std::string> WheelPlaces() {
  std::vector<std::string> folders;
  Dl_info here;
  if (dladdr(reinterpret_cast<const void*>(&LoadNccl), &here) != 0 && here.dli_fname != nullptr) {
    const std::string file = here.dli_fname;
    folders.push_back(file.substr(0, file.rfind('/') + 1) + "../");
  }
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* into) {
        auto& found = *static_cast<std::vector<std::string>*>(into);
        const std::string packages = PackagesAround(info->dlpi_name != nullptr ? info->dlpi_name : "");
        if (!packages.empty() && std::find(found.begin(), found.end(), packages) == found.end()) {
          found.push_back(packages);
        }
        return 0;
      },
      &folders);
  for (std::string& folder : folders) folder += std::string("nvidia/nccl/lib/") + kName;
  return folders;
}

std::string Find() {
  for (const std::string& place : WheelPlaces()) {
    if (access(place.c_str(), R_OK) == 0) return place;
  }
  return kName;
}

std::string Words(int version) { return Concat(version / 10000, ".", version / 100 % 100, ".", version % 100); }

// The functions of a library, or why they cannot be used.
Result<std::unique_ptr<nccl::Api>> LookUp(void* library, const std::string& path, int* version) {
  auto api = std::make_unique<nccl::Api>();
  std::string missing;
#define SMDDP_LOOK_UP(name)                                                        \
  api->name = reinterpret_cast<decltype(api->name)>(dlsym(library, "nccl" #name)); \
  if (api->name == nullptr && missing.empty()) missing = "nccl" #name;
  SMDDP_NCCL_FUNCTIONS(SMDDP_LOOK_UP)
#undef SMDDP_LOOK_UP
  if (api->GetVersion != nullptr &&
      (api->GetVersion(version) != nccl::Result::kSuccess || *version < nccl::kOldestVersion)) {
    // Versions up to 2.8 use another numbering: 2806.
    return Status(Reason::kBadState, path, " is NCCL ", *version < 10000 ? "2.8 or older" : Words(*version),
                  ", and smddp_tf needs 2.14 or newer: pip install -U nvidia-nccl-cu12 (or nvidia-nccl-cu13).");
  }
  if (missing.empty()) return api;
  return Status(Reason::kBadState, path, " is not a complete NCCL library: it lacks ", missing, ".");
}

}  // namespace

Result<DeviceGroupLibrary*> LoadNccl(const std::string& path) {
  static std::mutex mutex;
  static auto* const loaded = new std::map<std::string, DeviceGroupLibrary*>;  // lives as long as the process
  const std::lock_guard<std::mutex> lock(mutex);
  const std::string from = path.empty() ? Find() : path;
  if (const auto found = loaded->find(from); found != loaded->end()) return found->second;
  void* const library = dlopen(from.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Status(Reason::kBadState, "NCCL cannot be loaded: ", dlerror(),
                  ". Install the wheel for TensorFlow's CUDA (pip install nvidia-nccl-cu12 or nvidia-nccl-cu13), or "
                  "set SMDDP_NCCL_LIBRARY to the path of libnccl.so.2.");
  }
  int version = 0;
  Result<std::unique_ptr<nccl::Api>> api = LookUp(library, from, &version);
  if (!api.ok()) {
    dlclose(library);
    return api.status();
  }
  return (*loaded)[from] = new NcclLibrary(*api->release(), version);
}

}  // namespace smddp
