"""The widgets of the web page and their wiring; `service` does the work."""

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..solvers import GRIDS
from . import render
from .choice import CHOICES, COMPARED_NFES, MAX_NFE, MAX_SAMPLES, MAX_SEED, default_choice, solver_label
from .service import CANCELLED, Service, View

if TYPE_CHECKING:
    import gradio as gr

STYLE = Path(__file__).parent / "page.css"
SCRIPT = Path(__file__).parent / "page.js"
COMPUTE: dict[str, Any] = {"concurrency_limit": 1, "concurrency_id": "compute"}  # one job at a time over all users
# Event handlers get the browser's raw values: `service` validates them, and our own code decodes images.
RAW: dict[str, Any] = {"preprocess": False, "api_visibility": "private", "show_progress": "hidden"}
REFERENCE = "Clean reference"
FULL = "The queue is full: too many restorations are waiting. Please try again later."
QUEUED = "Waiting to start: one restoration runs at a time."
USUAL = "default"
# On a phone the result is below the settings: it comes into sight when it is there.
REVEAL = "() => { const end = document.querySelector('#outcome'); if (innerWidth < 700) end.scrollIntoView(true) }"


def build_page(service: Service, about: str) -> "gr.Blocks":
    """Build the page; `about` is a line on the model and the device."""
    import gradio as gr

    page: gr.Blocks
    with gr.Blocks(title="MR Sampler", analytics_enabled=False) as page:
        gr.HTML(
            f"<h1>MR Sampler</h1><p>Photo restoration by mean-reverting diffusion.</p>"
            f'<p class="facts">{escape(about)}</p>',
            elem_id="title",
        )
        with gr.Row(equal_height=False, elem_id="main"):
            with gr.Column(scale=4, min_width=320):
                images = gr.Gallery(
                    label="Photos", elem_id="image", height=250, columns=4, object_fit="contain", type="filepath",
                    file_types=["image"], sources=["upload", "clipboard"], buttons=[], interactive=True,
                    allow_preview=False,
                )  # fmt: skip
                problem = gr.HTML(elem_id="problem")
                gallery = _examples(service)
                with gr.Tabs(elem_id="tabs"):
                    with gr.Tab("Restore", id="restore") as restore_tab:
                        run = _buttons("Restore", "run")
                        settings = _settings(service)
                    with gr.Tab("Compare solvers", id="compare") as compare_tab:
                        solvers, nfes, seed = _comparison(service)
                        compare = _buttons("Compare", "compare")
                reference, panel = _reference()
            with gr.Column(scale=7, min_width=320, elem_id="outcome"):
                results = gr.HTML('<p class="facts empty">The restored photo appears here.</p>', elem_id="results")
                grid = gr.HTML('<p class="facts empty">The comparison appears here.</p>', elem_id="grid")
        gr.HTML(
            '<p class="facts">Everything is computed on this machine; nothing is sent anywhere else. '
            f"Accepted: {escape(str(service.limits))}.</p>"
        )
        for tab in (restore_tab, compare_tab):
            name = "restore" if tab is restore_tab else "compare"
            tab.select(None, None, None, js=f"() => {{ document.body.dataset.tab = '{name}' }}")
        _wire_inputs(service, images, problem, gallery, reference, panel)

        def restore(user: str, images: Any, reference: Any, *values: Any) -> Iterator[View]:
            return service.restoring(images, reference, values, user)

        def compared(user: str, images: Any, reference: Any, *values: Any) -> Iterator[View]:
            solvers, nfes, seed = values
            return service.comparing(images, reference, solvers, nfes, seed, user)

        _wire(service, *run, results, restore, [images, reference, *settings])
        _wire(service, *compare, grid, compared, [images, reference, solvers, nfes, seed])
        _api(service)

        def leave(request: gr.Request) -> None:
            for name in ("run", "compare", "api"):
                service.jobs.forget(_user(request, name))

        page.unload(leave)
    return page


def _examples(service: Service) -> "gr.Gallery":
    import gradio as gr

    return gr.Gallery(
        [(str(example.degraded), example.task) for example in service.examples],
        show_label=False,
        container=False,
        columns=5,
        object_fit="cover",
        allow_preview=False,
        buttons=[],
        interactive=False,
        elem_id="examples",
    )


def _reference() -> tuple["gr.Image", "gr.Accordion"]:
    import gradio as gr

    with gr.Accordion(f"{REFERENCE} (optional)", open=False, elem_id="reference-panel") as panel:
        reference = gr.Image(
            label=REFERENCE, elem_id="reference", height=200, show_label=False, type="filepath",
            sources=["upload", "clipboard"], buttons=["fullscreen"],
        )  # fmt: skip
    return reference, panel


def _settings(service: Service) -> list[Any]:
    """The widgets of a restoration, in the order of the fields of `Choice`."""
    import gradio as gr

    default = default_choice(service.restorer)
    with gr.Group():
        automatic = gr.Checkbox(
            True, label="Automatic strength", info="Leaves photos alone that look clean", elem_id="automatic"
        )
        strength = gr.Slider(
            0, 1, 1, step=0.05, label="Strength", info="From the photo as it is (0) to the whole restoration (1)",
            elem_id="strength", visible=False,
        )  # fmt: skip
        full = gr.Checkbox(
            False, label="Full size", elem_id="full",
            info=f"Photos of more than {service.limits.at_once / 1e6:g} megapixels are shrunk otherwise",
        )  # fmt: skip
        nfe = gr.Slider(
            1, MAX_NFE, default.nfe, step=1, label="Network evaluations (NFE)", info="More take longer", elem_id="nfe"
        )
        samples = gr.Slider(
            1, MAX_SAMPLES, 1, step=1, label="Samples",
            info="With 2 or more: their mean, and a map of where the model is unsure", elem_id="samples",
        )  # fmt: skip
    with gr.Accordion("Advanced options", open=False, elem_id="advanced"):
        solver = gr.Dropdown(
            [(solver_label(service.restorer, name), name) for name in CHOICES], value=default.solver, label="Solver",
            elem_id="solver", filterable=False,
        )  # fmt: skip
        seed = gr.Number(0, label="Seed", precision=0, minimum=0, maximum=MAX_SEED, elem_id="seed")
        with gr.Row():
            order = _choices("Order", "order", [("1", 1), ("2", 2), ("3", 3)])
            clamp = _choices("Clip (clamp)", "clamp", [("yes", "on"), ("no", "off")])
        with gr.Row():
            grid = _choices("Time grid", "grid-name", [(name, name) for name in GRIDS])
            compat = _choices("Compat", "compat", [("official", "official")], "no")
        tau = gr.Textbox(
            "", label="Stochasticity (tau)", info=f"From 0 (ODE) to 1 (SDE); empty: {USUAL}", placeholder=USUAL,
            max_lines=1, elem_id="tau",
        )  # fmt: skip
    automatic.change(lambda on: gr.Slider(visible=on is not True), automatic, strength, queue=False, **RAW)
    return [solver, nfe, seed, samples, automatic, strength, full, order, tau, grid, clamp, compat]


def _choices(label: str, name: str, choices: list[tuple[str, Any]], usual: str = USUAL) -> "gr.Dropdown":
    import gradio as gr

    return gr.Dropdown([(usual, ""), *choices], value="", label=label, elem_id=name, filterable=False, min_width=120)


def _comparison(service: Service) -> tuple["gr.CheckboxGroup", "gr.CheckboxGroup", "gr.Number"]:
    import gradio as gr

    default = default_choice(service.restorer)
    with gr.Group():
        solvers = gr.CheckboxGroup(
            list(CHOICES), value=list(dict.fromkeys([default.solver, "mrsampler-pc", "posterior"])), label="Solvers",
            elem_id="solvers",
        )  # fmt: skip
        nfes = gr.CheckboxGroup(
            [(str(nfe), nfe) for nfe in COMPARED_NFES],
            value=[2, 4, 8],
            label="Network evaluations (NFE)",
            elem_id="nfes",
        )
        seed = gr.Number(0, label="Seed", precision=0, minimum=0, maximum=MAX_SEED, elem_id="compare-seed")
    return solvers, nfes, seed


def _buttons(label: str, name: str) -> tuple["gr.Button", "gr.Button", "gr.HTML"]:
    """A button to start, one to cancel, and where the progress is shown."""
    import gradio as gr

    with gr.Row(elem_classes="buttons"):
        run = gr.Button(label, variant="primary", elem_id=name, scale=3, min_width=120)
        cancel = gr.Button("Cancel", elem_id=f"cancel-{name}", interactive=False, scale=1, min_width=90)
    return run, cancel, gr.HTML(elem_id="status" if name == "run" else f"{name}-status")


# ---- wiring


def _wire_inputs(service: Service, images: Any, problem: Any, gallery: Any, reference: Any, panel: Any) -> None:
    """Uploads are checked at once; an example brings its reference."""
    import gradio as gr

    def shown(path: Path | None) -> str | None:
        return None if path is None else str(path)

    def check_images(values: Any) -> tuple[Any, ...]:
        found, problems = [], ""
        for value in values if isinstance(values, list) else []:
            path, name, text = service.uploaded(value.get("image", value) if isinstance(value, dict) else value)
            problems += text
            if path is not None:
                found.append((str(path), name))
        if len(found) > service.limits.max_photos:
            problems += render.message(f"only the first {service.limits.max_photos} photos are taken at once")
        label = gr.Accordion(label=f"{REFERENCE} (optional)")
        return found[: service.limits.max_photos], None, problems, label, gr.Gallery(selected_index=None)

    def check_reference(value: Any) -> tuple[Any, ...]:
        path, _, text = service.uploaded(value, "reference")
        return shown(path), text

    def pick(chosen: gr.SelectData) -> tuple[Any, ...]:
        if not isinstance(chosen.index, int) or not 0 <= chosen.index < len(service.examples):
            return gr.skip(), gr.skip(), render.message("there is no such example"), gr.skip()
        example = service.examples[chosen.index]
        label = gr.Accordion(label=f"{REFERENCE}: the example's")
        return [(str(example.degraded), example.task)], str(example.clean), "", label

    def forget(values: Any) -> tuple[Any, ...]:
        if values:
            return gr.skip(), gr.skip(), gr.skip()
        return None, "", gr.Accordion(label=f"{REFERENCE} (optional)")

    images.upload(check_images, images, [images, reference, problem, panel, gallery], queue=False, **RAW)
    images.change(forget, images, [reference, problem, panel], queue=False, **RAW)
    reference.upload(check_reference, reference, [reference, problem], queue=False, **RAW)
    gallery.select(pick, None, [images, reference, problem, panel], queue=False, **RAW)


def _user(request: "gr.Request", name: str) -> str:
    """Key of a job: the browser's session and the button."""
    return f"{request.session_hash}/{name}"


def _wire(
    service: Service,
    run: "gr.Button",
    cancel: "gr.Button",
    status: "gr.HTML",
    results: "gr.HTML",
    work: Any,
    inputs: list[Any],
) -> None:
    """The run button queues the work; the cancel button stops it, running or still waiting."""
    import gradio as gr

    name = str(run.elem_id)

    def buttons(running: bool, text: str) -> dict[Any, Any]:
        return {run: gr.Button(interactive=not running), cancel: gr.Button(interactive=running), status: text}

    def wait(request: gr.Request) -> dict[Any, Any]:
        service.jobs.forget(_user(request, name))
        return buttons(True, render.progress(0, 1, QUEUED))

    def shown(request: gr.Request, *values: Any) -> Iterator[dict[Any, Any]]:
        for view in work(_user(request, name), *values):
            found = {} if view.results is None else {results: view.results}
            yield buttons(view.running, view.status) | found

    def stop(request: gr.Request) -> dict[Any, Any]:
        service.jobs.stop(_user(request, name))
        return buttons(False, render.message(CANCELLED, "info"))

    def fail(request: gr.Request) -> dict[Any, Any]:  # Gradio also reports a cancelled job as a failure
        cancelled = service.jobs.stopped(_user(request, name))
        return buttons(False, render.message(CANCELLED, "info") if cancelled else render.message(FULL))

    waiting = run.click(wait, None, [run, cancel, status], queue=False, **RAW)
    working = waiting.then(shown, inputs, [run, cancel, status, results], **RAW, **COMPUTE)
    working.failure(fail, None, [run, cancel, status], queue=False, **RAW)
    working.success(None, None, None, js=REVEAL)
    cancel.click(stop, None, [run, cancel, status], cancels=[working], queue=False, **RAW)


def _api(service: Service) -> None:
    """The endpoint `/restore` for gradio_client: docs/app.md describes it."""
    import gradio as gr
    from gradio.events import api

    default = default_choice(service.restorer)

    def restore(
        photo: dict[str, Any],
        request: gr.Request,
        nfe: int = default.nfe,
        solver: str = default.solver,
        seed: int = 0,
        strength: float | None = None,
        full: bool = False,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Restore a photo: the restored file, and a report of what was done."""
        values = [solver, nfe, seed, 1, False, strength, full, "", "", "", "", ""]
        *_, last = service.restoring([photo], None, values, _user(request, "api"))
        if not last.files:
            raise gr.Error(last.error or CANCELLED, print_exception=False)
        file = last.files[0]
        data = {"path": str(file), "url": render.url(file), "orig_name": file.name}
        return data | {"meta": {"_type": "gradio.FileData"}}, last.report or {}

    api(restore, api_name="restore", **COMPUTE)
