// Prepares a graph's collectives for execution: numbers those that occur several times in the graph
// (NumberPlaces), and has the engine told when a run begins (ops/kernels/run_begins.cc).
//
// The pass runs after TensorFlow has inlined functions, loops and branches. Functions that XLA compiles remain calls,
// whose collectives cannot be told apart. They run one after another (smddp_tf/collectives/xla.py), and collectives of
// the graph itself get different numbers. Other functions that remain calls (`_noinline`) are refused where a graph
// holds their collectives twice: nothing defines their order.
#include <cstring>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "ops/collective_kernel.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/graph/graph.h"

namespace smddp::ops {
namespace {

using tensorflow::AttrSlice;
using tensorflow::AttrValue;
using tensorflow::FunctionDef;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::Graph;
using tensorflow::Node;

// After LowerFunctionalOpsPass.
constexpr int kPhase = 1000;

// Compares numbers in names by value: "call_2" before "call_10".
struct Natural {
  bool operator()(const std::string& a, const std::string& b) const { return strverscmp(a.c_str(), b.c_str()) < 0; }
};

// The name without its last part: the calls and name scopes around a node.
std::string PlaceOf(const std::string& node_name) {
  const size_t slash = node_name.rfind('/');
  return slash == std::string::npos ? "" : node_name.substr(0, slash);
}

// For each place its index among the distinct ones, in natural order. TensorFlow prepares a graph for execution by
// replacing calls with the bodies of functions, loops and branches. A collective of a function that is called twice is
// then in the graph twice, with equal attributes. Only the node's name differs: it begins with the names of the calls
// ("StatefulPartitionedCall_1/SmddpAllreduce"). The names may differ between ranks, because another call on rank 0
// alone shifts the numbers in them. Their order does not differ.
std::vector<int> NumberPlaces(const std::vector<std::string>& places) {
  const std::set<std::string, Natural> different(places.begin(), places.end());
  std::vector<int> numbers;
  for (const std::string& place : places) {
    numbers.push_back(static_cast<int>(std::distance(different.begin(), different.find(place))));
  }
  return numbers;
}

std::string TextOf(const AttrSlice& attributes, const char* name) {
  std::string text;
  return tensorflow::TryGetNodeAttr(attributes, name, &text) ? text : "";
}

int64_t NumberOf(const AttrSlice& attributes, const char* name) {
  int64_t number = 0;
  return tensorflow::TryGetNodeAttr(attributes, name, &number) ? number : 0;
}

// One tensor of a plan?
bool IsPlanned(const AttrSlice& attributes) { return attributes.Find("plan_key") != nullptr; }

// The key by which the ranks match a collective: its plan or its name, with its process set; "" for other ops.
std::string MatchedBy(const std::string& type, const AttrSlice& attributes) {
  if (type.rfind("Smddp", 0) != 0 || attributes.Find("tensor_name") == nullptr) return "";
  const std::string set = std::to_string(NumberOf(attributes, "process_set"));
  const bool planned = IsPlanned(attributes) || TextOf(attributes, "kind") == "reduce_gradients";
  if (planned) return set + " plan " + std::to_string(NumberOf(attributes, "plan"));
  return set + " name " + TextOf(attributes, "tensor_name");
}

// The collectives in the bodies of functions.
class Library {
 public:
  explicit Library(const FunctionLibraryDefinition* functions) : functions_(functions) {}

  // The keys of the collectives in all functions that a node calls.
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

using Groups = std::map<std::string, std::vector<Node*>>;  // nodes by key

Groups CollectivesIn(const Graph& graph) {
  Groups groups;
  for (Node* const node : graph.op_nodes()) {
    const std::string matched = MatchedBy(node->type_string(), node->attrs());
    if (!matched.empty()) groups[matched].push_back(node);
  }
  return groups;
}

// The keys of collectives inside calls that are not inlined.
std::set<std::string> InCalls(const Graph& graph, Library* library) {
  std::set<std::string> found;
  for (const Node* const node : graph.op_nodes()) {
    found.merge(library->CalledBy(node->type_string(), node->attrs()));
  }
  return found;
}

absl::Status CheckCalls(const Graph& graph, const Groups& groups, Library* library) {
  std::set<std::string> called;
  for (const Node* const node : graph.op_nodes()) {
    bool compiled = false;
    if (tensorflow::TryGetNodeAttr(node->attrs(), "_XlaMustCompile", &compiled) && compiled) continue;
    for (const std::string& matched : library->CalledBy(node->type_string(), node->attrs())) {
      if (groups.count(matched) == 0 && called.insert(matched).second) continue;
      return absl::InvalidArgumentError(
          "The function that '" + node->name() +
          "' calls holds collectives of smddp_tf, is used in several places of one graph, and is not inlined, so the "
          "ranks cannot tell its uses apart. Remove `_noinline` from its tf.function.");
    }
  }
  return absl::OkStatus();
}

// The gradients of one reducer share one site; each collective that is matched by name has its own. Number 0 is that
// of calls, where there are any.
void NumberSites(const Groups& groups, const std::set<std::string>& in_calls) {
  for (const auto& [matched, nodes] : groups) {
    std::vector<std::string> places;
    for (const Node* const node : nodes) {
      places.push_back(IsPlanned(node->attrs()) ? PlaceOf(node->name()) : node->name());
    }
    const std::vector<int> numbers = NumberPlaces(places);
    const int first = static_cast<int>(in_calls.count(matched));
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (first + numbers[i] > 0) nodes[i]->AddAttr("site", first + numbers[i]);
    }
  }
}

void MarkThoseAlone(const Groups& groups) {
  std::map<std::string, std::set<std::string>> plans_of_key;
  const auto key_of = [](const Node* node) {
    return std::to_string(NumberOf(node->attrs(), "process_set")) + TextOf(node->attrs(), "plan_key");
  };
  for (const auto& [matched, nodes] : groups) {
    if (IsPlanned(nodes.front()->attrs())) plans_of_key[key_of(nodes.front())].insert(matched);
  }
  for (const auto& [matched, nodes] : groups) {
    if (!IsPlanned(nodes.front()->attrs()) || plans_of_key[key_of(nodes.front())].size() > 1) continue;
    for (Node* const node : nodes) node->AddAttr("alone", true);
  }
}

// One node for each request, and for each use of a plan. hvd.join makes none; a compiled collective may be either.
std::vector<Node*> OneOfEach(const Groups& groups) {
  std::map<std::pair<std::string, int64_t>, Node*> by_site;
  for (const auto& [matched, nodes] : groups) {
    const std::string& type = nodes.front()->type_string();
    if (type == "SmddpJoin" || type == "SmddpCompiledCollective") continue;
    for (Node* const node : nodes) by_site.try_emplace({matched, NumberOf(node->attrs(), "site")}, node);
  }
  std::vector<Node*> found;
  for (const auto& [site, node] : by_site) found.push_back(node);
  return found;
}

class CallSitesPass : public tensorflow::GraphOptimizationPass {
 public:
  absl::Status Run(const tensorflow::GraphOptimizationPassOptions& options) override {
    if (options.graph == nullptr || *options.graph == nullptr) return absl::OkStatus();
    Graph* const graph = options.graph->get();
    const Groups groups = CollectivesIn(*graph);
    Library library(options.flib_def);
    if (options.is_function_graph) {
      const absl::Status status = CheckCalls(*graph, groups, &library);
      if (!status.ok()) return status;
    }
    if (groups.empty()) return absl::OkStatus();
    NumberSites(groups, InCalls(*graph, &library));
    MarkThoseAlone(groups);
    return options.is_function_graph ? AddRunBegins(graph, OneOfEach(groups)) : absl::OkStatus();
  }
};

REGISTER_OPTIMIZATION(tensorflow::OptimizationPassRegistry::PRE_PLACEMENT, kPhase, CallSitesPass);

}  // namespace
}  // namespace smddp::ops
