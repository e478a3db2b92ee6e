// Tracks which side is newer.
#include "engine/averaging/math/state_home.h"

namespace engine {

void StateHome::begin_use() {
  require(views_ == 0, "the state is used where it lives while the host looks at its mirror");
  if (newer_ != Newer::kMirror) return;
  upload();
  newer_ = Newer::kNeither;
}

HostView::HostView(StateHome& home, Access access) : home_(home), access_(access) {
  if (home.newer_ == StateHome::Newer::kHome) {
    home.download();
    home.newer_ = StateHome::Newer::kNeither;
  }
  ++home.views_;
}

HostView::~HostView() {
  --home_.views_;
  if (access_ == Access::kWrite) home_.newer_ = StateHome::Newer::kMirror;
}

StateUse::StateUse(StateHome& home, bool at_home) : math_(at_home ? home.math() : nullptr) {
  if (math_ == nullptr) {
    view_.emplace(home, Access::kWrite);
    return;
  }
  home.begin_use();
  home.changed();
}

}  // namespace engine
