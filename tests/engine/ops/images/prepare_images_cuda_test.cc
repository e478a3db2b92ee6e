// Images from bytes on a CUDA device: the loader's own floats, bit by bit.
#include "engine/ops/images/prepare_images.h"
#include "io/data/images/image_preparer.h"
#include "io/data/loader/batch_loader.h"
#include "tests/engine/ops/device/cuda_test_support.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

io::Dataset random_images(std::int64_t size, std::array<std::int64_t, 3> shape) {
  io::Dataset set;
  set.name = "images";
  set.set_shape(shape);
  set.as<io::ClassLabels>().count = 3;
  io::SplitMix random(1, 2);
  for (std::int64_t i = 0; i < size; ++i)
    set.as<io::ClassLabels>().ids.push_back(static_cast<std::int32_t>(i % 3));
  for (std::int64_t k = 0; k < size * set.sample_count(); ++k)
    set.as<io::ImageSamples>().pixels.push_back(static_cast<std::uint8_t>(random.below(256)));
  for (std::int64_t c = 0; c < shape[2]; ++c) {
    set.as<io::ImageSamples>().format.mean.push_back(0.4f + 0.03f * static_cast<float>(c));
    set.as<io::ImageSamples>().format.deviation.push_back(0.2f + 0.07f * static_cast<float>(c));
  }
  return set;
}

ImageDraw to_device_draw(const io::AugmentationDraw& draw) {
  const auto narrow = [](std::int64_t value) { return static_cast<std::int32_t>(value); };
  return {narrow(draw.shift_y),     narrow(draw.shift_x),     draw.mirrored ? 1 : 0,
          narrow(draw.cutout_top),  narrow(draw.cutout_left), narrow(draw.cutout_bottom),
          narrow(draw.cutout_right)};
}

// Device memory of plain structs.
struct DeviceDraws {
  explicit DeviceDraws(const std::vector<ImageDraw>& draws)
      : memory(std::max<std::size_t>(draws.size() * sizeof(ImageDraw), 1), kDevice) {
    engine::cuda::copy_async(memory.data(), draws.data(), draws.size() * sizeof(ImageDraw),
                             nullptr);
    engine::cuda::synchronize_device();
  }
  const ImageDraw* data() const { return reinterpret_cast<const ImageDraw*>(memory.data()); }
  Arena memory;
};

template <class T>
std::vector<T> prepared(const std::array<std::int64_t, 3>& shape,
                        const std::vector<std::uint8_t>& bytes, const std::vector<ImageDraw>& draws,
                        const std::vector<float>& table) {
  const auto n = static_cast<std::int64_t>(draws.size());
  const Shape images{n, shape[0], shape[1], shape[2]};
  DeviceContext c;
  const DeviceOperand<std::uint8_t> device_bytes(images, bytes);
  const DeviceOperand<float> device_table({shape[2], kImageTableRow}, table);
  const DeviceOperand<T> out(images, std::vector<T>(bytes.size(), stored<T>({-77})[0]));
  const DeviceDraws device_draws(draws);
  prepare_images(c.context, {.images = device_bytes.view(),
                             .draws = device_draws.data(),
                             .table = device_table.view(),
                             .out = out.view()});
  c.finish();
  return out.values();
}

// Two epochs of batches, once as floats and once as bytes that the device prepares.
template <class T>
void expect_the_loaders_floats(const io::Dataset& set, std::int64_t batch,
                               io::Normalization normalization,
                               const io::Augmentation& augmentation) {
  const io::SamplerOptions order{
      .size = set.size(), .global_batch = batch, .seed = 3, .shuffle = true};
  io::BatchLoader floats(set, order, {normalization, 0, 1, augmentation});
  io::BatchLoader raw(
      set, order,
      {.normalization = normalization, .workers = 1, .augmentation = augmentation, .bytes = true});
  const std::vector<float> table =
      io::ImagePreparer(set.as<io::ImageSamples>().format, set.name, normalization, augmentation)
          .table();
  for (std::int64_t step = 0; step < 2 * io::Sampler(order).steps_per_epoch(); ++step) {
    const io::Batch &expected = floats.next(), &found = raw.next();
    ASSERT_TRUE(found.samples.empty());
    ASSERT_TRUE(std::ranges::equal(found.sample_ids, expected.sample_ids));
    ASSERT_TRUE(std::ranges::equal(found.labels, expected.labels));
    std::vector<ImageDraw> draws;
    for (const io::AugmentationDraw& draw : found.draws) draws.push_back(to_device_draw(draw));
    const std::vector<T> values =
        prepared<T>(set.shape(), {found.pixels.begin(), found.pixels.end()}, draws, table);
    ASSERT_EQ(as_floats(values),
              as_floats(stored<T>({expected.samples.begin(), expected.samples.end()})));
  }
}

template <class T>
class PrepareImagesCuda : public CudaTest {};
TYPED_TEST_SUITE(PrepareImagesCuda, Storages);

TYPED_TEST(PrepareImagesCuda, GivesTheLoadersFloats) {
  using io::Augmentation;
  for (const std::array<std::int64_t, 3>& shape :
       {std::array<std::int64_t, 3>{8, 9, 3}, {5, 7, 1}, {1, 1, 1}, {3, 3, 5}, {16, 16, 3}})
    for (const io::Normalization normalization :
         {io::Normalization::kUnit, io::Normalization::kStandard}) {
      const io::Dataset set = random_images(11, shape);
      for (const Augmentation& augmentation :
           {Augmentation{}, Augmentation{.crop = true, .crop_padding = 2},
            Augmentation{.flip = true}, Augmentation{.cutout = true, .cutout_size = 3},
            Augmentation{.crop = true,
            .flip = true,
            .cutout = true,
            .crop_padding = 12,
            .cutout_size = 4}}) {
        SCOPED_TRACE(std::to_string(shape[0]) + "x" + std::to_string(shape[1]) + "x" +
                     std::to_string(shape[2]));
        expect_the_loaders_floats<TypeParam>(set, 4, normalization, augmentation);
      }
    }
}

// An image in several parts, of an odd number of elements, so that images begin within a pack of 16
// bytes.
TYPED_TEST(PrepareImagesCuda, CutsLargeImagesIntoParts) {
  const io::Augmentation all{
      .crop = true, .flip = true, .cutout = true, .crop_padding = 4, .cutout_size = 16};
  expect_the_loaders_floats<TypeParam>(random_images(3, {67, 41, 3}), 3,
                                       io::Normalization::kStandard, all);
}

// More of them than blocks.
TYPED_TEST(PrepareImagesCuda, TakesManyImages) {
  expect_the_loaders_floats<TypeParam>(random_images(1100, {1, 3, 1}), 1100,
                                       io::Normalization::kStandard,
                                       {.crop = true, .crop_padding = 1});
}

// A table that does not fit into shared memory.
TYPED_TEST(PrepareImagesCuda, TakesManyChannels) {
  const io::Augmentation all{
      .crop = true, .flip = true, .cutout = true, .crop_padding = 1, .cutout_size = 2};
  expect_the_loaders_floats<TypeParam>(random_images(3, {3, 5, 61}), 2,
                                       io::Normalization::kStandard, all);
}

TYPED_TEST(PrepareImagesCuda, TakesAnEmptyBatchAndRefusesWhatDoesNotFit) {
  const std::vector<float> table(2 * kImageTableRow);
  EXPECT_TRUE(prepared<TypeParam>({4, 4, 2}, {}, {}, table).empty());
  DeviceContext c;
  const DeviceOperand<std::uint8_t> bytes({1, 4, 4, 2}, std::vector<std::uint8_t>(32));
  const DeviceOperand<TypeParam> out({1, 4, 4, 2}, std::vector<TypeParam>(32)),
      narrow({1, 4, 4, 1}, std::vector<TypeParam>(16));
  const DeviceOperand<float> device_table({2, kImageTableRow}, table),
      short_table({2, 256}, std::vector<float>(512));
  const DeviceDraws draws(std::vector<ImageDraw>(1));
  EXPECT_THROW(prepare_images(c.context, {.images = bytes.view(),
                                          .draws = nullptr,
                                          .table = device_table.view(),
                                          .out = out.view()}),
               ShapeError);
  EXPECT_THROW(prepare_images(c.context, {.images = bytes.view(),
                                          .draws = draws.data(),
                                          .table = short_table.view(),
                                          .out = out.view()}),
               ShapeError);
  EXPECT_THROW(prepare_images(c.context, {.images = bytes.view(),
                                          .draws = draws.data(),
                                          .table = device_table.view(),
                                          .out = narrow.view()}),
               ShapeError);
  Context host(1, 0);
  EXPECT_THROW(prepare_images(host.context, {.images = bytes.view(),
                                             .draws = draws.data(),
                                             .table = device_table.view(),
                                             .out = out.view()}),
               Error);
}

}  // namespace
}  // namespace engine::ops
