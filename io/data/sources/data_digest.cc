// What identifies a data set, whatever its folder is called.
#include <cstdio>

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
  add(data.samples);
  add(data.features);
  add(data.tokens);
  if (data.source) data.source->add_to(digest);
  const base::Digest value = digest.value();
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(value.high),
                static_cast<unsigned long long>(value.low));
  return text;
}

}  // namespace io
