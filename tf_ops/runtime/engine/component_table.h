// The components of one session, in the order in which the engine calls them.
//
// Threads: the engine's; Add before the engine starts.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "runtime/control/component.h"
#include "runtime/control/messages.h"

namespace smddp {

class ComponentTable {
 public:
  // When a component receives its messages: until the session has failed, or always.
  enum class Delivery { kUntilFailure, kAlways };
  void Add(Component* component, const std::vector<ControlType>& types, Delivery delivery) {
    all_.push_back(component);
    for (const ControlType type : types) readers_[type] = {component, delivery};
  }

  struct Reader {
    Component* component = nullptr;  // null: the engine handles these itself
    Delivery delivery = Delivery::kAlways;
  };
  Reader ReaderOf(ControlType type) const {
    const auto at = readers_.find(type);
    return at == readers_.end() ? Reader() : at->second;
  }

  const std::vector<Component*>& all() const { return all_; }
  int64_t OldestNs() const {
    int64_t oldest = Component::kNever;
    for (const Component* each : all_) oldest = std::min(oldest, each->OldestNs());
    return oldest;
  }
  bool expecting() const { return Any(&Component::expecting); }
  bool waiting() const { return Any(&Component::waiting); }
  bool polls() const { return Any(&Component::polls); }
  bool lends() const { return Any(&Component::lends); }

 private:
  bool Any(bool (Component::*question)() const) const {
    return std::any_of(all_.begin(), all_.end(), [=](const Component* each) { return (each->*question)(); });
  }

  std::vector<Component*> all_;
  std::map<ControlType, Reader> readers_;
};

}  // namespace smddp
