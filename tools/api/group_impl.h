// Defines the implementation of a public Group.
#pragma once

#include <functional>
#include <memory>

#include "backends/group.h"
#include "engine/collectives.h"

namespace engine::api {

struct Group::Impl {
  std::unique_ptr<backends::Group> group;
  std::function<bool()> cancelled = {};  // called while it leaves; may be empty
  bool ended = false;                    // it has left or was abandoned
  bool left = false;                     // it has left: no call may begin
};

}  // namespace engine::api
