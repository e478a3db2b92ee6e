// Memory of an averaging that a checkpoint must hold.
#pragma once

#include <string>

#include "engine/core/parameter_buffer.h"

namespace engine {

struct PolicyState {
  std::string name;    // "outer_momentum"
  FlatBuffer* buffer;  // owned by the policy
  bool local;          // its content differs between ranks
};

}  // namespace engine
