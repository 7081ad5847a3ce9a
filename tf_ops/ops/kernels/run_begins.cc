#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "ops/collective_kernel.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op_requires.h"

namespace smddp::ops {
namespace {

using tensorflow::Edge;
using tensorflow::Node;

bool ReadsBatch(const Node& node) { return node.type_string().find("IteratorGetNext") == 0; }

// The values that enter the loop of which `exit` is a result.
std::vector<const Node*> EntriesOf(const Node& exit) {
  std::vector<const Node*> entries;
  const Node *in_loop = nullptr, *merge = nullptr;
  if (!exit.input_node(0, &in_loop).ok() || !in_loop->input_node(0, &merge).ok()) return entries;
  for (const Edge* edge : merge->in_edges()) {
    if (edge->src()->IsEnter()) entries.push_back(edge->src());
  }
  return entries;
}

// Does `node` run whenever the graph does? The number counts the branches that a walk towards the inputs is inside of:
// their results join in a Merge, and they begin at a Switch.
bool AlwaysRuns(const Node* node) {
  std::set<std::pair<const Node*, int>> seen;
  std::vector<std::pair<const Node*, int>> left = {{node, 0}};
  while (!left.empty()) {
    const auto [at, inside] = left.back();
    left.pop_back();
    if (!seen.insert({at, inside}).second) continue;
    if (at->IsEnter() || (at->IsSwitch() && inside == 0)) return false;
    const int next = inside + (at->IsMerge() ? 1 : 0) - (at->IsSwitch() ? 1 : 0);
    for (const Node* entry : at->IsExit() ? EntriesOf(*at) : std::vector<const Node*>()) {
      for (const Edge* edge : entry->in_edges()) left.emplace_back(edge->src(), inside);
    }
    if (at->IsExit()) continue;
    for (const Edge* edge : at->in_edges()) left.emplace_back(edge->src(), next);
  }
  return true;
}

std::set<const Node*> WithInputs(std::vector<const Node*> nodes) {
  std::set<const Node*> found;
  while (!nodes.empty()) {
    const Node* const node = nodes.back();
    nodes.pop_back();
    if (!found.insert(node).second) continue;
    for (const Edge* edge : node->in_edges()) nodes.push_back(edge->src());
  }
  return found;
}

Node* Add(tensorflow::Graph* graph, const std::string& type, absl::Status* status) {
  tensorflow::NodeDef definition;
  definition.set_name(graph->NewName("smddp/" + type));
  definition.set_op(type);
  return graph->AddNode(std::move(definition), status);
}

// Of `collective`, and what it is matched by.
Node* AddRunBegins(tensorflow::Graph* graph, const Node& collective, absl::Status* status) {
  Node* const begins = Add(graph, "SmddpRunBegins", status);
  if (!status->ok()) return begins;
  const auto copy = [&](const char* name, const auto& otherwise) {
    const tensorflow::AttrValue* const value = collective.attrs().Find(name);
    value != nullptr ? begins->AddAttr(name, *value) : begins->AddAttr(name, otherwise);
  };
  copy("tensor_name", std::string());
  copy("process_set", 0);
  copy("plan", -1);
  copy("site", 0);
  copy("alone", false);
  return begins;
}

// A value that is there when the run begins. Constants of branches and loops have inputs.
bool IsGiven(const Node& node) {
  const auto& inputs = node.in_edges();
  const auto from_source = [](const Edge* edge) { return edge->src()->IsSource(); };
  return node.IsSource() || node.IsArg() ||
         (node.IsConstant() && std::all_of(inputs.begin(), inputs.end(), from_source));
}

// Nothing can fail before it, as in the function that TensorFlow makes of an operation that runs eagerly.
bool IsOnlyOperation(const tensorflow::Graph& graph, const Node& collective) {
  const auto& nodes = graph.op_nodes();
  return std::all_of(nodes.begin(), nodes.end(), [&](const Node* node) {
    return node == &collective || IsGiven(*node) || node->IsRetval() || node->type_string() == "NoOp" ||
           node->IsIdentity();
  });
}

// SmddpRunBegins: a run of a graph that holds collectives has begun (session.h BeginPlanned).
class RunBeginsKernel final : public tensorflow::OpKernel {
 public:
  explicit RunBeginsKernel(tensorflow::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("tensor_name", &name_));
    OP_REQUIRES_OK(construction, construction->GetAttr("process_set", &process_set_));
    OP_REQUIRES_OK(construction, construction->GetAttr("plan", &where_.plan));
    OP_REQUIRES_OK(construction, construction->GetAttr("site", &where_.site));
    OP_REQUIRES_OK(construction, construction->GetAttr("alone", &where_.alone));
    name_ = NameAt(name_, where_.site);
  }

  // Without a session the collective itself fails, with an error that says why.
  void Compute(tensorflow::OpKernelContext* context) override {
    const Result<std::shared_ptr<Session>> session = SessionOf(process_set_);
    if (!session.ok() || (*session)->topology().size() == 1) return;
    if (where_.plan < 0) return (*session)->Begin(name_);
    PlannedTensor where = where_;
    where.run = RunOf(context);
    (*session)->BeginPlanned(where);
  }
  bool IsExpensive() override { return false; }

 private:
  std::string name_;
  int process_set_ = 0;
  PlannedTensor where_;
};

REGISTER_KERNEL_BUILDER(Name("SmddpRunBegins").Device(tensorflow::DEVICE_CPU), RunBeginsKernel);

}  // namespace

absl::Status AddRunBegins(tensorflow::Graph* graph, const std::vector<Node*>& collectives) {
  std::vector<const Node*> readers;
  for (const Node* const node : graph->op_nodes()) {
    if (ReadsBatch(*node) && AlwaysRuns(node)) readers.push_back(node);
  }
  if (collectives.size() == 1 && IsOnlyOperation(*graph, *collectives.front())) return absl::OkStatus();
  const std::set<const Node*> before = WithInputs(readers);
  std::vector<Node*> always;
  for (Node* const collective : collectives) {
    if (before.count(collective) != 0) return absl::OkStatus();
    if (AlwaysRuns(collective)) always.push_back(collective);
  }
  if (always.empty()) return absl::OkStatus();
  std::vector<Node*> first;
  for (Node* const node : graph->op_nodes()) {
    const auto& inputs = node->in_edges();
    const bool starts = std::all_of(inputs.begin(), inputs.end(), [&](const Edge* edge) {
      return IsGiven(*edge->src()) || ReadsBatch(*edge->src());
    });
    if (starts && !IsGiven(*node) && before.count(node) == 0) first.push_back(node);
  }
  absl::Status status;
  Node* const all_known = Add(graph, "NoOp", &status);
  if (!status.ok()) return status;
  for (const Node* const collective : always) {
    Node* const begins = AddRunBegins(graph, *collective, &status);
    if (!status.ok()) return status;
    for (const Node* const reader : readers) graph->AddControlEdge(const_cast<Node*>(reader), begins);
    graph->AddControlEdge(begins, all_known);
  }
  for (Node* const node : first) graph->AddControlEdge(all_known, node);
  return absl::OkStatus();
}

}  // namespace smddp::ops
