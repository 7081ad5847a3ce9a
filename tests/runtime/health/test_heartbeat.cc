// Who lives, by an invented clock: what each rank concludes from the signs it sees.
#include <map>

#include "native/testing.h"
#include "runtime/health/heartbeat.h"

namespace smddp {
namespace {

constexpr double kTimeout = 15.0;
using Hosts = std::vector<std::string>;
const Hosts kHosts = {"a:boot:1", "a:boot:1", "b:boot:1", "b:boot:1", "c:boot:1"};

int64_t Ns(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

// One rank's watch, with a clock in seconds that the test turns.
class Watch {
 public:
  explicit Watch(int rank, const Hosts& hosts = kHosts, double timeout_s = kTimeout)
      : topology_(Value(Topology::Build(rank, hosts))),
        departures_(topology_),
        heartbeat_(topology_, departures_, timeout_s) {}

  using Signs = std::vector<std::pair<double, bool>>;     // by member: when it beat last, and whether it is dead
  std::string FindLost(double now, const Signs& signs) {  // "": nobody
    const auto lost = heartbeat_.FindLost(
        Ns(now), [&](int member) { return LifeSigns{Ns(signs.at(member).first), signs.at(member).second}; });
    return lost.value_or("");
  }
  void Tick(double now) { heartbeat_.Tick(Ns(now)); }
  // A few times a second, after `from`; returns the time of the last one, which is `until` or a little later.
  double TickUntil(double from, double until) {
    while (from < until) Tick(from += 0.2);
    return from;
  }
  void Heard(int rank, double now) { heartbeat_.Heard(rank, Ns(now)); }
  // The kernel of that rank's host has acknowledged nothing for so many seconds.
  void Unanswered(int rank, double seconds) { heartbeat_.Unanswered(rank, Ns(seconds)); }
  void Left(int rank, bool reads = false) { departures_.Add(rank, {/*clean=*/true, reads, /*told=*/{}}, /*now_ns=*/0); }
  std::vector<int> Due(double now) { return heartbeat_.Due(Ns(now)); }

 private:
  const Topology topology_;
  Departures departures_;
  Heartbeat heartbeat_;
};

// Ticks from 1 s on; every second until the given one it hears of these ranks.
void Run(Watch* watch, double until, const std::map<int, double>& heard_until = {}) {
  for (double now = 1.0; now <= until; now += 0.2) {
    watch->Tick(now);
    for (const auto& [sender, last] : heard_until) {
      for (double second = 1; second <= last; ++second) {
        if (now - 0.2 < second && second <= now) watch->Heard(sender, now);
      }
    }
  }
}

TEST_CASE("heartbeat: a mate that beats lives") {
  Watch watch(0);
  Run(&watch, 60, {{2, 60}, {4, 60}});
  CHECK(watch.FindLost(60.1, {{60.0, false}, {59.5, false}}).empty());
}

TEST_CASE("heartbeat: a silent mate is named before the timeout") {
  Watch watch(0);
  Run(&watch, 60, {{2, 60}, {4, 60}});
  CHECK(watch.FindLost(60.0, {{60.0, false}, {60.0 - 12.2, false}}).empty());
  CHECK(Begins(watch.FindLost(60.0, {{60.0, false}, {60.0 - 12.7, false}}),
               "No sign of life from rank 1 (host a) for 12.7 s (SMDDP_HEARTBEAT_TIMEOUT)"));
}

TEST_CASE("heartbeat: a dead mate is named at the second look") {
  Watch watch(3);
  Run(&watch, 2);
  CHECK(watch.FindLost(2.1, {{2.0, true}, {2.0, false}}).empty());  // a goodbye may be on its way
  CHECK(Begins(watch.FindLost(2.2, {{2.0, true}, {2.0, false}}), "Rank 2 (host b) has died"));
}

TEST_CASE("heartbeat: a mate that has left is not missed") {
  Watch watch(3);
  Run(&watch, 30, {{0, 30}, {4, 30}});
  watch.Left(2);
  for (const double now : {30.1, 30.2}) CHECK(watch.FindLost(now, {{2.0, true}, {30.0, false}}).empty());
}

TEST_CASE("heartbeat: all dead mates are named") {
  Watch watch(2, {"a", "a", "a"});
  watch.Tick(1.0);
  const Watch::Signs signs = {{1.0, true}, {1.0, true}, {1.0, false}};
  watch.FindLost(1.0, signs);
  CHECK(Begins(watch.FindLost(1.1, signs), "Ranks 0, 1 (host a) have died: their processes"));
}

TEST_CASE("heartbeat: a silent node is named by the speakers of others") {
  const std::map<int, double> heard = {{2, 20}, {4, 60}};
  const Watch::Signs mates = {{60.0, false}, {60.0, false}};
  Watch late(0), early(0), no_speaker(1);
  Run(&late, 34.6, heard);
  Run(&early, 33.4, heard);
  Run(&no_speaker, 34.6, heard);
  CHECK(Begins(late.FindLost(34.6, mates), "No sign of life from ranks 2, 3 (host b) for 14."));
  CHECK(early.FindLost(33.4, mates).empty());
  CHECK(no_speaker.FindLost(34.6, mates).empty());  // nobody speaks to it
}

TEST_CASE("heartbeat: any rank shows that its node lives") {
  Watch watch(0);
  Run(&watch, 60, {{3, 60}, {4, 60}});
  CHECK(watch.FindLost(60.0, {{60.0, false}, {60.0, false}}).empty());
}

TEST_CASE("heartbeat: the own pause is forgiven") {
  // A process that was stopped for a minute must not take all others for silent.
  Watch watch(0);
  Run(&watch, 10, {{2, 10}, {4, 10}});
  watch.Tick(70.0);
  CHECK(watch.FindLost(70.0, {{10.0, false}, {10.0, false}}).empty());
  const double now = watch.TickUntil(70.0, 84.0);
  CHECK(Has(watch.FindLost(now, {{10.0, false}, {10.0, false}}), "rank 1"));
}

TEST_CASE("heartbeat: a host whose kernel does not answer is named early, a rank that is stopped is not") {
  const Watch::Signs mates = {{22.5, false}, {22.5, false}};
  for (const double unanswered : {0.0, 2.2, 2.3}) {
    Watch watch(0);
    Run(&watch, 22.5, {{2, 20}, {4, 22.5}});
    watch.Unanswered(2, unanswered);
    CHECK(watch.FindLost(22.5, mates) ==
          (unanswered < 2.25 ? ""
                             : "No answer from ranks 2, 3 (host b) for 2.3 s (SMDDP_HEARTBEAT_TIMEOUT): that host is "
                               "down, or the network to it is cut."));
    watch.Unanswered(2, 0.0);  // it was slow
    CHECK(watch.FindLost(22.5, mates).empty());
  }
}

TEST_CASE("heartbeat: the limit for an answer is a share of the timeout") {
  Watch watch(0, kHosts, 60.0);
  Run(&watch, 40, {{2, 30}, {4, 40}});
  watch.Unanswered(2, 8.9);
  CHECK(watch.FindLost(40, {{40, false}, {40, false}}).empty());
  watch.Unanswered(2, 9.1);
  CHECK(Begins(watch.FindLost(40, {{40, false}, {40, false}}), "No answer from ranks 2, 3 (host b) for 9.1 s"));
}

TEST_CASE("heartbeat: no host is silent longer than nothing was heard of it, or than this process runs") {
  Watch heard(0), paused(0), left(0);
  const Watch::Signs mates = {{30.0, false}, {30.0, false}};
  Run(&heard, 30, {{2, 29}, {4, 30}});  // by another connection, say
  heard.Unanswered(2, 20.0);
  CHECK(heard.FindLost(30.0, mates).empty());
  Run(&paused, 10, {{2, 10}, {4, 10}});
  paused.Tick(30.0);
  paused.Unanswered(2, 20.0);
  CHECK(paused.FindLost(30.0, mates).empty());
  Run(&left, 30, {{2, 20}, {4, 30}});
  for (const int rank : {2, 3}) left.Left(rank);
  left.Unanswered(2, 9.0);
  CHECK(left.FindLost(30.0, mates).empty());
}

TEST_CASE("heartbeat: a host that is lost is named within three seconds") {
  // Its kernel answers until then. What is sent later is repeated twice within a second.
  for (double lost = 20.0; lost < 21.2; lost += 0.05) {
    Watch watch(0);
    double now = 1.0, answered = 0.0, first_sent = 0.0;
    const auto look = [&] {
      watch.Tick(now += 0.205);  // five times a second, and what the thread's sleep adds
      for (const int rank : {4, now < lost ? 2 : 4}) watch.Heard(rank, now);
      for (const int rank : watch.Due(now)) {
        if (rank != 2) continue;
        const bool repeated = first_sent > 0 && now - first_sent > 1.0;
        watch.Unanswered(2, repeated ? now - answered : 0.0);
        if (now < lost) answered = now;
        if (now >= lost && first_sent == 0) first_sent = now;
      }
      return watch.FindLost(now, {{now, false}, {now, false}});
    };
    std::string said;
    while (said.empty() && now < 40) said = look();
    CHECK(Begins(said, "No answer from ranks 2, 3 (host b) for "));
    CHECK(now - lost < 3.0);
    CHECK(now - lost > 1.0);
  }
}

TEST_CASE("heartbeat: speakers beat to speakers twice a second") {
  Watch speaker(2), other(3);
  Run(&speaker, 5);
  Run(&other, 5);
  CHECK(speaker.Due(5.0) == std::vector<int>{0, 4});
  CHECK(speaker.Due(5.4) == std::vector<int>{});
  CHECK(speaker.Due(5.6) == std::vector<int>{0, 4});
  CHECK(other.Due(5.0) == std::vector<int>{});
}

TEST_CASE("heartbeat: the next rank speaks when a speaker has left") {
  Watch watch(3);
  Run(&watch, 5);
  for (const int rank : {2, 0, 4}) watch.Left(rank);
  CHECK(watch.Due(5.0) == std::vector<int>{1});
}

TEST_CASE("heartbeat: a speaker at the end of its program speaks until all have left") {
  Watch next(3);
  Run(&next, 5);
  next.Left(2, true);
  CHECK(next.Due(5.0) == std::vector<int>{});
  Watch watch(2);
  Run(&watch, 60);
  for (const int rank : {0, 1}) watch.Left(rank, true);
  CHECK(watch.Due(60.0) == std::vector<int>{0, 4});
  watch.Tick(120.0);
  watch.Tick(120.2);
  watch.Heard(4, 134.0);
  const double now = watch.TickUntil(120.2, 134.0);
  CHECK(watch.FindLost(now, {{now, false}, {now, false}}).empty());  // nobody is missed on a node that all left
}

TEST_CASE("heartbeat: a new speaker does not miss what was sent to the one before") {
  // Rank 2 leaves after a minute, in which the other nodes beat to it and not to rank 3.
  Watch watch(3);
  Run(&watch, 60);
  watch.Left(2);
  double now = 60.0;
  while (now < 72.0) {
    watch.Tick(now += 0.2);
    CHECK(watch.FindLost(now, {{60.0, false}, {now, false}}).empty());
  }
  now = watch.TickUntil(now, 74.0);
  CHECK(Begins(watch.FindLost(now, {{60.0, false}, {now, false}}), "No sign of life from ranks 0, 1 (host a) for 14."));
}

TEST_CASE("heartbeat: no timeout still sees the dead") {
  Watch watch(0, {"a", "a", "b"}, 0.0);
  for (const double now : {1.0, 1000.0}) watch.Tick(now);
  CHECK(watch.Due(1000.0) == std::vector<int>{});
  CHECK(watch.FindLost(1000.0, {{0.0, false}, {0.0, false}}).empty());
  CHECK(watch.FindLost(1000.0, {{0.0, false}, {0.0, true}}).empty());
  CHECK(Begins(watch.FindLost(1000.1, {{0.0, false}, {0.0, true}}), "Rank 1 (host a) has died"));
}

}  // namespace
}  // namespace smddp
