// Replays the messages of gradient buckets over a simulated cluster, with SimGrid's model of flows that share links.
// For `benchmarks.simulate`, which writes the input and explains the model.
//
// Input: hosts, bits per second of a link, seconds of latency, seconds a message costs a host, bytes it is longer on a
// link, chunks in flight, hosts a leaf switch has (0: one switch for all), 1/oversubscription; the seconds by which
// each host is late; the algorithms: number, and for each and every host the number of its messages, each (to, share of
// the bytes, how many messages one after another come before it); the chunks: number, and for each the second at which
// it is ready, its bytes, its algorithm, the seconds a host needs to add it up. Output: the second at which the last
// host has the last chunk.

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <simgrid/s4u.hpp>
#include <string>
#include <vector>

namespace sg4 = simgrid::s4u;

namespace {

struct Message {
  int to = 0;
  double share = 0;
};

// What one host does for a chunk, in levels: it receives all messages of a level, then sends those of it.
struct Part {
  std::vector<std::vector<Message>> sends;
  std::vector<int> receives;
};

struct Chunk {
  double ready = 0, bytes = 0, adding = 0;
  int algorithm = 0;
};

struct Job {
  int hosts = 0, in_flight = 1, leaf = 0;
  double rate = 0, latency = 0, message = 0, longer = 0, uplink = 1;
  std::vector<double> late;
  std::vector<std::vector<Part>> algorithms;
  std::vector<Chunk> chunks;
};

double end_of_all = 0;

template <class Number>
Number Read() {
  Number number;
  std::cin >> number;
  if (!std::cin) std::exit((std::fprintf(stderr, "replay: the input ends early\n"), 2));
  return number;
}

std::vector<Part> ReadAlgorithm(int hosts) {
  std::vector<Part> parts(hosts);
  size_t levels = 1;
  for (Part& part : parts) {
    for (int left = Read<int>(); left > 0; --left) {
      const int to = Read<int>();
      const double share = Read<double>();
      const auto level = Read<size_t>();
      if (part.sends.size() <= level) part.sends.resize(level + 1);
      part.sends[level].push_back({to, share});
      levels = std::max(levels, level + 2);
    }
  }
  for (Part& part : parts) part.receives.resize(levels), part.sends.resize(levels);
  for (const Part& part : parts) {
    for (size_t level = 0; level + 1 < levels; ++level) {
      for (const Message& message : part.sends[level]) ++parts[message.to].receives[level + 1];
    }
  }
  return parts;
}

Job ReadJob() {
  Job job;
  job.hosts = Read<int>();
  job.rate = Read<double>() / 8;
  job.latency = Read<double>();
  job.message = Read<double>();
  job.longer = Read<double>();
  job.in_flight = Read<int>();
  job.leaf = Read<int>();
  job.uplink = Read<double>();
  for (int host = 0; host < job.hosts; ++host) job.late.push_back(Read<double>());
  for (int left = Read<int>(); left > 0; --left) job.algorithms.push_back(ReadAlgorithm(job.hosts));
  for (int left = Read<int>(); left > 0; --left) {
    Chunk chunk;
    chunk.ready = Read<double>();
    chunk.bytes = Read<double>();
    chunk.algorithm = Read<int>();
    chunk.adding = Read<double>();
    job.chunks.push_back(chunk);
  }
  return job;
}

// Hosts of speed 1 (a second of work is 1), each with a link in either direction; leaf switches are joined by links of
// the rate of all their hosts times `uplink`.
void Build(const Job& job) {
  auto* zone = sg4::create_star_zone("cluster");
  std::vector<sg4::Link*> leaves;
  const int leaf_count = job.leaf > 0 ? (job.hosts + job.leaf - 1) / job.leaf : 0;
  for (int leaf = 0; leaf < leaf_count; ++leaf) {
    for (const char* way : {"up", "down"}) {
      const std::string name = "leaf" + std::to_string(leaf) + way;
      leaves.push_back(zone->create_link(name, job.rate * job.leaf * job.uplink)->set_latency(0)->seal());
    }
  }
  for (int index = 0; index < job.hosts; ++index) {
    const std::string name = std::to_string(index);
    auto* host = zone->create_host(name, 1.0)->seal();
    auto* up = zone->create_link("up" + name, job.rate)->set_latency(job.latency / 2)->seal();
    auto* down = zone->create_link("down" + name, job.rate)->set_latency(job.latency / 2)->seal();
    std::vector<sg4::LinkInRoute> out = {sg4::LinkInRoute(up)}, in = {sg4::LinkInRoute(down)};
    if (job.leaf > 0) out.emplace_back(leaves[2 * (index / job.leaf)]);
    if (job.leaf > 0) in.insert(in.begin(), sg4::LinkInRoute(leaves[2 * (index / job.leaf) + 1]));
    zone->add_route(host->get_netpoint(), nullptr, nullptr, nullptr, out, false);
    zone->add_route(nullptr, host->get_netpoint(), nullptr, nullptr, in, false);
  }
  zone->seal();
}

sg4::Mailbox* MailboxOf(int host, size_t chunk, size_t level) {
  return sg4::Mailbox::by_name(std::to_string(host) + "/" + std::to_string(chunk) + "/" + std::to_string(level));
}

void DoChunk(const Job& job, int host, size_t index) {
  static int nothing = 0;
  const Chunk& chunk = job.chunks[index];
  const Part& part = job.algorithms[chunk.algorithm][host];
  sg4::this_actor::sleep_until(chunk.ready + job.late[host]);
  if (chunk.adding > 0) sg4::this_actor::execute(chunk.adding);
  for (size_t level = 0; level < part.receives.size(); ++level) {
    for (int left = part.receives[level]; left > 0; --left) MailboxOf(host, index, level)->get<int>();
    const std::vector<Message>& sends = part.sends[level];
    if (!sends.empty() && job.message > 0) sg4::this_actor::execute(job.message * static_cast<double>(sends.size()));
    for (const Message& message : sends) {
      const auto bytes = static_cast<uint64_t>(message.share * chunk.bytes + job.longer);
      MailboxOf(message.to, index, level + 1)->put_init(&nothing, bytes)->detach();
    }
  }
  end_of_all = std::max(end_of_all, sg4::Engine::get_clock());
}

}  // namespace

int main(int count, char** arguments) {
  sg4::Engine engine(&count, arguments);
  sg4::Engine::set_config("network/model:CM02");
  sg4::Engine::set_config("network/TCP-gamma:0");
  sg4::Engine::set_config("network/crosstraffic:0");
  const Job job = ReadJob();
  Build(job);
  for (int host = 0; host < job.hosts; ++host) {
    for (int slot = 0; slot < job.in_flight; ++slot) {
      sg4::Actor::create("chunks", sg4::Host::by_name(std::to_string(host)), [&job, host, slot] {
        for (size_t index = slot; index < job.chunks.size(); index += job.in_flight) DoChunk(job, host, index);
      });
    }
  }
  engine.run();
  std::printf("%.9f\n", end_of_all);
  return 0;
}
