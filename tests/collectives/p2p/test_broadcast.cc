#include "native/members.h"
#include "native/ranks.h"

namespace smddp {
namespace {

TEST_CASE("broadcast: every rank gets the root's tensors, whichever rank that is") {
  for (const Hosts& hosts : Layouts()) {
    for (int root = 0; root < static_cast<int>(hosts.size()); ++root) {
      CAPTURE(root);
      const std::vector<int64_t> lengths = {5, 0, 700'001};  // more than two pieces of 1 MiB
      AsRanks(hosts, [&](int rank, Session& session) {
        std::vector<std::vector<float>> data;
        Request request(RequestKind::kBroadcast, "broadcast", {});
        request.root = root;
        for (const int64_t length : lengths) data.push_back(ValuesOf(rank, length));
        for (size_t i = 0; i < lengths.size(); ++i) {
          request.tensors.push_back({DType::kFloat32, {lengths[i]}, data[i].data(), data[i].data()});
        }
        CHECK(Wait([&](DoneCallback done) { session.Submit(request, done); }).ok());
        for (size_t i = 0; i < lengths.size(); ++i) CHECK((data[i] == ValuesOf(root, lengths[i])));
      });
    }
  }
}

}  // namespace
}  // namespace smddp
