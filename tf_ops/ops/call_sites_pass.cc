// Prepares a graph's collectives for execution: numbers those that a graph holds several times (ops/call_sites.h), and
// puts calls of compiled functions with equal collectives one after the other.
//
// It runs when TensorFlow has put the bodies of functions, loops and branches in the place of their calls. Functions
// that XLA compiles stay calls: two of them would use the same names at the same time.
#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "ops/call_sites.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/graph/algorithm.h"
#include "tensorflow/core/graph/control_flow.h"
#include "tensorflow/core/graph/graph.h"

namespace smddp::ops {
namespace {

using tensorflow::AttrSlice;
using tensorflow::AttrValue;
using tensorflow::Edge;
using tensorflow::FunctionDef;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::Graph;
using tensorflow::Node;

// After LowerFunctionalOpsPass.
constexpr int kPhase = 1000;

bool IsOurs(const std::string& type) { return type.rfind("Smddp", 0) == 0; }

std::string TextOf(const AttrSlice& attributes, const char* name) {
  std::string text;
  return tensorflow::TryGetNodeAttr(attributes, name, &text) ? text : "";
}

int64_t NumberOf(const AttrSlice& attributes, const char* name) {
  int64_t number = 0;
  return tensorflow::TryGetNodeAttr(attributes, name, &number) ? number : 0;
}

// What the ranks match a collective by: its plan or its name, in its process set; "" for other ops.
std::string MatchedBy(const std::string& type, const AttrSlice& attributes) {
  if (!IsOurs(type) || attributes.Find("tensor_name") == nullptr) return "";
  const std::string set = std::to_string(NumberOf(attributes, "process_set"));
  const bool planned = type == "SmddpReduceGradient" || TextOf(attributes, "kind") == "reduce_gradients";
  if (planned) return set + " plan " + std::to_string(NumberOf(attributes, "plan"));
  return set + " name " + TextOf(attributes, "tensor_name");
}

// The collectives in the bodies of functions.
class Library {
 public:
  explicit Library(const FunctionLibraryDefinition* functions) : functions_(functions) {}

  // In all functions that a node calls, by what they are matched by.
  std::set<std::string> CalledBy(const std::string& type, const AttrSlice& attributes) {
    std::set<std::string> found = In(type);
    for (const auto& [name, value] : attributes) AddFrom(value, &found);
    return found;
  }

 private:
  void AddFrom(const AttrValue& value, std::set<std::string>* found) {
    if (value.has_func()) found->merge(std::set<std::string>(In(value.func().name())));
    for (const auto& function : value.list().func()) found->merge(std::set<std::string>(In(function.name())));
  }

  const std::set<std::string>& In(const std::string& function) {
    const auto [at, is_new] = known_.try_emplace(function);
    const FunctionDef* const body = is_new && functions_ != nullptr ? functions_->Find(function) : nullptr;
    if (body == nullptr) return at->second;
    std::set<std::string> found;
    for (const tensorflow::NodeDef& node : body->node_def()) {
      const std::string matched = MatchedBy(node.op(), AttrSlice(node));
      if (!matched.empty()) found.insert(matched);
      found.merge(CalledBy(node.op(), AttrSlice(node)));
    }
    return known_[function] = std::move(found);
  }

  const FunctionLibraryDefinition* const functions_;
  std::map<std::string, std::set<std::string>> known_;
};

using Groups = std::map<std::string, std::vector<Node*>>;  // nodes by what they are matched by

Groups CollectivesIn(const Graph& graph) {
  Groups groups;
  for (Node* const node : graph.op_nodes()) {
    const std::string matched = MatchedBy(node->type_string(), node->attrs());
    if (!matched.empty()) groups[matched].push_back(node);
  }
  return groups;
}

// The gradients of one reducer are in one place; what is matched by name is a place each.
void NumberSites(const Groups& groups) {
  for (const auto& [matched, nodes] : groups) {
    std::vector<std::string> places;
    for (const Node* const node : nodes) {
      places.push_back(node->type_string() == "SmddpReduceGradient" ? PlaceOf(node->name()) : node->name());
    }
    const std::vector<int> numbers = NumberPlaces(places);
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (numbers[i] > 0) nodes[i]->AddAttr("site", numbers[i]);
    }
  }
}

void MarkThoseAlone(const Groups& groups) {
  std::map<std::string, std::set<std::string>> plans_of_key;
  const auto key_of = [](const Node* node) {
    return std::to_string(NumberOf(node->attrs(), "process_set")) + TextOf(node->attrs(), "plan_key");
  };
  const auto is_planned = [](const Node* node) { return node->type_string() == "SmddpReduceGradient"; };
  for (const auto& [matched, nodes] : groups) {
    if (is_planned(nodes.front())) plans_of_key[key_of(nodes.front())].insert(matched);
  }
  for (const auto& [matched, nodes] : groups) {
    if (!is_planned(nodes.front()) || plans_of_key[key_of(nodes.front())].size() > 1) continue;
    for (Node* const node : nodes) node->AddAttr("alone", true);
  }
}

// What must not run at the same time as another one that shares a collective with it.
struct Part {
  std::vector<Node*> nodes;  // a call, or the collectives of the graph itself that a call has too
  std::set<std::string> collectives;
};

bool Share(const Part& a, const Part& b) {
  return std::any_of(a.collectives.begin(), a.collectives.end(),
                     [&](const std::string& each) { return b.collectives.count(each) != 0; });
}

std::vector<Part> PartsOf(const Graph& graph, const Groups& groups, Library* library) {
  std::vector<Part> parts;
  for (Node* const node : graph.op_nodes()) {
    std::set<std::string> called = library->CalledBy(node->type_string(), node->attrs());
    if (!called.empty()) parts.push_back({{node}, std::move(called)});
  }
  const size_t calls = parts.size();
  for (const auto& [matched, nodes] : groups) {
    const bool called = std::any_of(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(calls),
                                    [&](const Part& part) { return part.collectives.count(matched) != 0; });
    if (called) parts.push_back({nodes, {matched}});
  }
  return parts;
}

// Those that share a collective, directly or through others.
std::vector<std::vector<Part>> Clusters(std::vector<Part> parts) {
  std::vector<std::vector<Part>> clusters;
  while (!parts.empty()) {
    std::vector<Part> cluster = {std::move(parts.back())};
    parts.pop_back();
    for (size_t i = 0; i < cluster.size(); ++i) {
      for (auto at = parts.begin(); at != parts.end();) {
        const bool shares = Share(cluster[i], *at);
        if (shares) cluster.push_back(std::move(*at));
        at = shares ? parts.erase(at) : at + 1;
      }
    }
    if (cluster.size() > 1) clusters.push_back(std::move(cluster));
  }
  return clusters;
}

// Is a node of `from` before one of `to`, for each pair? A loop's way back does not count.
std::vector<std::vector<bool>> Reachable(const Graph& graph, const std::vector<Part>& parts) {
  std::vector<std::vector<bool>> reachable(parts.size(), std::vector<bool>(parts.size(), false));
  for (size_t from = 0; from < parts.size(); ++from) {
    std::vector<bool> seen(static_cast<size_t>(graph.num_node_ids()), false);
    std::vector<const Node*> open(parts[from].nodes.begin(), parts[from].nodes.end());
    while (!open.empty()) {
      const Node* const node = open.back();
      open.pop_back();
      for (const Edge* const edge : node->out_edges()) {
        const Node* const next = edge->dst();
        if (node->IsNextIteration() || seen[next->id()]) continue;
        seen[next->id()] = true;
        open.push_back(next);
      }
    }
    for (size_t to = 0; to < parts.size(); ++to) {
      for (const Node* const node : parts[to].nodes) reachable[from][to] = reachable[from][to] || seen[node->id()];
    }
  }
  return reachable;
}

absl::Status CannotOrder(const std::vector<Part>& cluster) {
  std::string calls;
  for (const Part& part : cluster) calls += (calls.empty() ? "'" : ", '") + part.nodes.front()->name() + "'";
  return absl::InvalidArgumentError(
      "Functions compiled by XLA (jit_compile=True) that hold the same collectives would run at the same time, and "
      "cannot be put in order where one is inside a loop and another is not, or each needs results of the other: " +
      calls +
      ". Compile the function around them (jit_compile=True), or none of them, or give their collectives names of "
      "their own.");
}

absl::Status PutInOrder(Graph* graph, const std::vector<Part>& cluster) {
  std::vector<tensorflow::ControlFlowInfo> frames;
  TF_RETURN_IF_ERROR(tensorflow::BuildControlFlowInfo(graph, &frames));
  const std::string& frame = frames[cluster.front().nodes.front()->id()].frame_name;
  std::vector<std::string> names;
  for (const Part& part : cluster) {
    names.push_back(part.nodes.front()->name());
    for (const Node* const node : part.nodes) {
      if (frames[node->id()].frame_name != frame) return CannotOrder(cluster);
    }
  }
  const std::vector<int> order = StableOrder(names, Reachable(*graph, cluster));
  if (order.empty()) return CannotOrder(cluster);
  for (size_t i = 1; i < order.size(); ++i) {
    for (Node* const first : cluster[order[i - 1]].nodes) {
      for (Node* const second : cluster[order[i]].nodes) graph->AddControlEdge(first, second);
    }
  }
  return absl::OkStatus();
}

class CallSitesPass : public tensorflow::GraphOptimizationPass {
 public:
  absl::Status Run(const tensorflow::GraphOptimizationPassOptions& options) override {
    if (options.graph == nullptr || *options.graph == nullptr) return absl::OkStatus();
    Graph* const graph = options.graph->get();
    const Groups groups = CollectivesIn(*graph);
    NumberSites(groups);
    MarkThoseAlone(groups);
    Library library(options.flib_def);
    for (const std::vector<Part>& cluster : Clusters(PartsOf(*graph, groups, &library))) {
      TF_RETURN_IF_ERROR(PutInOrder(graph, cluster));
    }
    return absl::OkStatus();
  }
};

REGISTER_OPTIMIZATION(tensorflow::OptimizationPassRegistry::PRE_PLACEMENT, kPhase, CallSitesPass);

}  // namespace
}  // namespace smddp::ops
