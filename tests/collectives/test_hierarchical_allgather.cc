#include "native/members.h"
#include "native/ranks.h"

namespace smddp {
namespace {

// Rows of three floats; as many of each rank as `rows` says. What all ranks get.
void Check(const Hosts& hosts, const std::vector<int64_t>& rows) {
  std::vector<float> expected;
  for (size_t rank = 0; rank < rows.size(); ++rank) {
    const std::vector<float> values = ValuesOf(static_cast<int>(rank), 3 * rows[rank]);
    expected.insert(expected.end(), values.begin(), values.end());
  }
  AsRanks(hosts, [&](int rank, Session& session) {
    const std::vector<float> mine = ValuesOf(rank, 3 * rows[rank]);
    std::vector<float> all;
    Request request(RequestKind::kAllgather, "gather", {{DType::kFloat32, {rows[rank], 3}, mine.data(), nullptr}});
    request.allocate = [&](int, const std::vector<int64_t>& dim0_of_rank) -> Result<void*> {
      CHECK(dim0_of_rank == rows);
      all.assign(expected.size(), -1);
      return all.data();
    };
    CHECK(Wait([&](DoneCallback done) { session.Submit(request, done); }).ok());
    CHECK((all == expected));
  });
}

TEST_CASE("allgather: blocks of all ranks in their order, also empty and uneven ones") {
  for (const Hosts& hosts : Layouts()) {
    CAPTURE(hosts.size());
    std::vector<int64_t> small, large, one;
    for (size_t rank = 0; rank < hosts.size(); ++rank) {
      small.push_back(static_cast<int64_t>(rank) % 3);           // inside of messages
      large.push_back(static_cast<int64_t>(3000 * (rank % 4)));  // several chunks, and none
      one.push_back(rank + 1 == hosts.size() ? 5001 : 0);        // all of it on the last rank
    }
    Check(hosts, small);
    Check(hosts, large);
    Check(hosts, one);
  }
}

}  // namespace
}  // namespace smddp
