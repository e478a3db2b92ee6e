// The settings of a published model are part of its layer list.
#include "models/text_limits.h"

#include "models/model_families.h"

namespace models {

std::optional<TextLimits> text_limits(const std::string& name, const std::string& definition) {
  const auto config = published_config_of(name, definition);
  if (!config) return std::nullopt;
  return TextLimits{.positions = config->family == PublishedFamily::kGpt2 ? config->context : 0,
                    .window = config->window};
}

}  // namespace models
