// What a public Group holds.
#pragma once

#include <functional>
#include <memory>

#include "backends/group.h"
#include "engine/collectives.h"

namespace engine::api {

struct Group::Impl {
  std::unique_ptr<backends::Group> group;
  std::function<bool()> cancelled = {};  // asked while it leaves; may be empty
  bool ended = false;                    // left or abandoned
};

}  // namespace engine::api
