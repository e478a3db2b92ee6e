// The settings of a published model are part of its layer list.
#include "models/text_limits.h"

#include "models/model_catalog.h"
#include "models/model_families.h"

namespace models {

std::optional<TextLimits> text_limits(const std::string& name, const std::string& definition) {
  const auto config = published_config_of(name, definition);
  if (!config) return std::nullopt;
  return TextLimits{.positions = config->family == PublishedFamily::kGpt2 ? config->context : 0,
                    .window = config->window};
}

std::optional<TextDefaults> text_defaults(const std::string& name, const std::string& definition) {
  const ModelOptions options =
      definition.empty() ? default_options(name) : layer_list_options(name, definition);
  if (options.sample_shape.rank() != 1) return std::nullopt;
  return TextDefaults{.context = options.sample_shape[0], .vocabulary = options.classes};
}

}  // namespace models
