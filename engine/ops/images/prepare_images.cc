// Checks and dispatches the conversion of images from bytes.
#include "engine/ops/images/prepare_images.h"

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/images/prepare_images_cuda.h"

namespace engine::ops {

void prepare_images(KernelContext& context, const PrepareImages& o) {
  constexpr std::string_view kName = "prepare_images";
  if (!on_cuda(context)) throw Error("prepare_images: needs a CUDA device");
  check_context(kName, context);
  check_floating(kName, "out", o.out);
  if (o.out.shape.rank() != 4 || o.out.shape.with_batch(1).count() >= std::int64_t{1} << 31)
    throw ShapeError("prepare_images: out has the shape " + o.out.shape.to_string() +
                     ": expected [n, h, w, c], images below 2^31");
  check_dtype(kName, "images", o.images, DType::kU8);
  check_shape(kName, "images", o.images, o.out.shape);
  check_dtype(kName, "table", o.table, DType::kF32);
  check_shape(kName, "table", o.table, {o.out.shape[3], kImageTableRow});
  if (o.draws == nullptr && o.out.count() > 0)
    throw ShapeError("prepare_images: draws are missing");
  dispatch_device(
      context.device.kind, [] {}, [&] { cuda::prepare_images(context, o); });
}

}  // namespace engine::ops
