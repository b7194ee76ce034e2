#include "engine/runtime/load_order.h"

namespace pinion {

void tell_load_order(Exchange& exchange, const LoadOptions& options) {
  MessageWriter message;
  message.begin(Order::load);
  message.add(static_cast<int64_t>(options.quant));
  message.add(options.head ? static_cast<int64_t>(*options.head) : -1);
  message.add(std::ssize(options.keep));
  for (const std::string& pattern : options.keep) message.add_text(pattern);
  message.add(options.rotate);
  message.add(options.ternary);
  message.add(options.synthetic_ternary);
  message.add_list(std::span<const int32_t>(options.calibration));
  exchange.tell(message.bytes());
}

void read_load_order(MessageReader& message, LoadOptions* out) {
  out->quant = static_cast<Quant>(message.number());
  const int64_t head = message.number();
  out->head.reset();
  if (head >= 0) out->head = static_cast<Format>(head);
  out->keep.resize(static_cast<size_t>(message.number()));
  for (std::string& pattern : out->keep) pattern = message.text();
  out->rotate = message.number() != 0;
  out->ternary = message.number() != 0;
  out->synthetic_ternary = message.number() != 0;
  message.list(&out->calibration);
}

}  // namespace pinion
