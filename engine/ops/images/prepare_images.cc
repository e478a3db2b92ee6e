// Checks and dispatch of images from bytes.
#include "engine/ops/images/prepare_images.h"

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/images/prepare_images_cuda.h"

namespace engine::ops {

void prepare_images(KernelContext& context, TensorView images, const ImageDraw* draws,
                    TensorView table, TensorView out) {
  constexpr std::string_view kName = "prepare_images";
  if (!on_cuda(context)) throw Error("prepare_images: needs a CUDA device");
  check_context(kName, context);
  check_floating(kName, "out", out);
  if (out.shape.rank() != 4 || out.shape.with_batch(1).count() >= std::int64_t{1} << 31)
    throw ShapeError("prepare_images: out has the shape " + out.shape.to_string() +
                     ": expected [n, h, w, c], images below 2^31");
  check_dtype(kName, "images", images, DType::kU8);
  check_shape(kName, "images", images, out.shape);
  check_dtype(kName, "table", table, DType::kF32);
  check_shape(kName, "table", table, {out.shape[3], kImageTableRow});
  if (draws == nullptr && out.count() > 0) throw ShapeError("prepare_images: draws are missing");
  dispatch_device(
      context.device.kind, [] {},
      [&] { cuda::prepare_images(context, images, draws, table, out); });
}

}  // namespace engine::ops
