// Shapes, devices and dtypes as text and numbers.
#include "engine/core/shape.h"

#include <gtest/gtest.h>

#include "engine/core/device.h"
#include "engine/core/error.h"

namespace engine {
namespace {

TEST(Shape, CountsAndPrints) {
  EXPECT_EQ((Shape{2, 3, 4}).count(), 24);
  EXPECT_EQ(Shape{}.count(), 1);
  EXPECT_EQ((Shape{28, 28, 1}).with_batch(100).to_string(), "[100, 28, 28, 1]");
  EXPECT_NE((Shape{1, 2}), (Shape{1, 2, 1}));
}

TEST(Shape, RefusesWhatItCannotHold) {
  EXPECT_THROW((Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}), ShapeError);
  EXPECT_THROW((Shape{-1}), ShapeError);
}

TEST(Device, ParsesAndPrints) {
  EXPECT_EQ(to_string(parse_device("cpu")), "cpu:0");
  EXPECT_EQ(parse_device("cuda:3"), (Device{Device::Kind::kCuda, 3}));
  for (const char* bad : {"", "gpu", "cpu:", "cpu:-1", "cpu:1x"})
    EXPECT_THROW(parse_device(bad), ModelError) << bad;
}

}  // namespace
}  // namespace engine
