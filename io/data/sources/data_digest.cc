// What identifies a data set, whatever its folder is called.
#include "io/base/digest.h"
#include "io/data/sources/dataset.h"
#include "io/data/sources/image_source.h"

namespace io {

std::string data_digest(const Dataset& data) {
  base::StreamDigest digest;
  const auto add = [&](const auto& values) {
    digest.add(std::as_bytes(std::span(values.data(), values.size())));
  };
  add(data.shape);
  digest.add(std::as_bytes(std::span(&data.classes, 1)));
  add(data.labels);
  if (data.target) {
    add(data.targets);
    digest.add(std::as_bytes(std::span(&data.target->mean, 1)));
    digest.add(std::as_bytes(std::span(&data.target->deviation, 1)));
  }
  add(data.samples);
  add(data.features);
  add(data.tokens);
  if (data.source) data.source->add_to(digest);
  return base::hex_text(digest.value());
}

}  // namespace io
