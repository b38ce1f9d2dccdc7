"""An attention that uses its layer state: it publishes the layer that it saw and adds a loss term."""

from regard.attention.mechanisms.softmax import SoftmaxAttention


class PublishedAttention(SoftmaxAttention):
    """Softmax attention that publishes "depth" and adds the mean square of its queries as the loss "size"."""

    def mix(self, q, k, v, mask, bias, layer_state=None):
        layer_state.publish("depth", (layer_state.previous("depth") or 0) + 1)
        layer_state.add_loss("size", q.square().mean())
        return super().mix(q, k, v, mask, bias, layer_state)
