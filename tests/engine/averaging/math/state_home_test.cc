// Who is brought up to date when: nothing is copied twice, and nothing is forgotten.
#include "engine/averaging/math/state_home.h"

#include <gtest/gtest.h>

namespace engine {
namespace {

// A state of one number with a mirror.
class Elsewhere final : public StateHome {
 public:
  void step() {
    begin_use();
    changed();
    ++home;
  }
  int home = 0, mirror = 0, downloads = 0, uploads = 0;

 private:
  void download() override {
    mirror = home;
    ++downloads;
  }
  void upload() override {
    home = mirror;
    ++uploads;
  }
};

TEST(StateHome, WhatTheHostBeganWithGoesUpBeforeTheFirstStepOnly) {
  Elsewhere state;
  state.mirror = 7;
  state.step();
  state.step();
  EXPECT_EQ(state.home, 9);
  EXPECT_EQ(state.uploads, 1);
  EXPECT_EQ(state.downloads, 0) << "nobody has looked";
}

TEST(StateHome, TheFirstLookAfterAStepFetchesAndFurtherOnesDoNot) {
  Elsewhere state;
  state.step();
  for (int look = 0; look < 3; ++look) {
    const HostView outer(state, Access::kRead);
    const HostView inner(state, Access::kRead);
    EXPECT_EQ(state.mirror, 1);
  }
  EXPECT_EQ(state.downloads, 1);
  state.step();
  EXPECT_EQ(state.uploads, 1) << "reading changes nothing";
  const HostView again(state, Access::kRead);
  EXPECT_EQ(state.mirror, 2);
}

TEST(StateHome, WhatWasWrittenGoesUpOnceBeforeTheNextStep) {
  Elsewhere state;
  state.step();
  for (const int value : {5, 6}) {
    const HostView view(state, Access::kWrite);
    state.mirror = value;
  }
  EXPECT_EQ(state.home, 1);
  state.step();
  EXPECT_EQ(state.home, 7);
  EXPECT_EQ(state.uploads, 2) << "the first step's, and this one";
}

TEST(StateHome, AWriterWithinAReaderCountsAsOne) {
  Elsewhere state;
  state.step();
  {
    const HostView reader(state, Access::kRead);
    const HostView writer(state, Access::kWrite);
    state.mirror = 3;
  }
  state.step();
  EXPECT_EQ(state.home, 4);
}

TEST(StateHome, RefusesAStepWhileTheHostLooks) {
  Elsewhere state;
  const HostView view(state, Access::kRead);
  EXPECT_THROW(state.step(), Error);
}

TEST(StateHome, OfHostMemoryHasNothingToDo) {
  StateHome here;
  const HostView view(here, Access::kWrite);
}

}  // namespace
}  // namespace engine
