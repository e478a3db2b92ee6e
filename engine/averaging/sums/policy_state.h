// Describes state of an averaging policy that a checkpoint must store.
#pragma once

#include <string>

#include "engine/core/parameter_buffer.h"

namespace engine {

struct PolicyState {
  std::string name;    // "outer_momentum"
  FlatBuffer* buffer;  // owned by the policy
  bool local;          // its contents differ between ranks
};

}  // namespace engine
