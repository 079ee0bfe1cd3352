//! Models: opened checkpoints, which are immutable and shared.

use crate::call::{self, Raw};
use crate::hooks::{self, Hooks, Keep, Progress};
use crate::{sys, Result, Token};
use std::fmt;
use std::ops::ControlFlow;
use std::os::raw::c_void;
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::Arc;

constants! {
    /// Where a model computes.
    Device {
        /// The processor.
        CPU = SPECBATCH_DEVICE_CPU,
        /// A GPU, by the library's module for CUDA.
        CUDA = SPECBATCH_DEVICE_CUDA,
    }
}

constants! {
    /// How matrix products are computed. Results differ between these, and in nothing else.
    Compute {
        /// What suits the device and the processor: name another one to compare machines.
        AUTO = SPECBATCH_COMPUTE_AUTO,
        /// Weights and matrix inputs are rounded to bfloat16.
        BF16 = SPECBATCH_COMPUTE_BF16,
        /// Weights as they are stored, and float activations.
        F32 = SPECBATCH_COMPUTE_F32,
        /// Activations are cut into three bfloat16 values: as accurate as F32.
        SPLIT = SPECBATCH_COMPUTE_SPLIT,
        /// For quantised weights: activations become integers of 8 bits.
        INT8 = SPECBATCH_COMPUTE_INT8,
    }
}

constants! {
    /// The instruction set of the CPU's arithmetic. All of them give the same bits.
    Simd {
        /// The best one that there is.
        AUTO = SPECBATCH_SIMD_AUTO,
        /// None.
        SCALAR = SPECBATCH_SIMD_SCALAR,
        /// AVX2.
        AVX2 = SPECBATCH_SIMD_AVX2,
        /// AVX-512.
        AVX512 = SPECBATCH_SIMD_AVX512,
        /// AVX-512 and the matrix unit.
        AMX = SPECBATCH_SIMD_AMX,
    }
}

constants! {
    /// The type of keys and values in a pool's caches. Results differ between these.
    Kv {
        /// F32 on the CPU, on CUDA the type of the weights.
        AUTO = SPECBATCH_KV_AUTO,
        /// Floats.
        F32 = SPECBATCH_KV_F32,
        /// bfloat16.
        BF16 = SPECBATCH_KV_BF16,
        /// Half precision.
        F16 = SPECBATCH_KV_F16,
    }
}

constants! {
    /// What matrices are quantised to when a model is opened. Results differ between these.
    Weights {
        /// As they are stored.
        AUTO = SPECBATCH_WEIGHTS_AUTO,
        /// 8 bits.
        Q8 = SPECBATCH_WEIGHTS_Q8,
        /// 4 bits.
        Q4 = SPECBATCH_WEIGHTS_Q4,
    }
}

constants! {
    /// Who computes the attention of long prompts on CUDA. Results differ between these.
    Prefill {
        /// The library's own kernel.
        OWN = SPECBATCH_PREFILL_OWN,
        /// cuDNN, where it passes a test.
        CUDNN = SPECBATCH_PREFILL_CUDNN,
    }
}

/// How a model is opened.
#[derive(Clone, Default)]
pub struct ModelOptions<'a> {
    raw: Raw<sys::specbatch_model_options>,
    hooks: Hooks,
    cuda_module: Option<PathBuf>,
    plan_file: Option<PathBuf>,
    progress: Option<&'a Progress<'a>>,
}

impl<'a> ModelOptions<'a> {
    /// The defaults.
    pub fn new() -> ModelOptions<'a> {
        ModelOptions::default()
    }

    setters! {
        /// Where it computes.
        constant device: Device,
        /// Which of the GPUs that CUDA sees.
        field device_index: i32,
        /// How matrix products are computed.
        constant compute: Compute,
        /// To force an instruction set, for tests and bug reports.
        constant simd: Simd,
        /// The type of keys and values.
        constant kv: Kv,
        /// What matrices are quantised to.
        constant weights: Weights,
        /// Who computes the attention of long prompts on CUDA.
        constant prefill: Prefill,
    }
    hook_setters!();

    /// The absolute path of `libspecbatch_cuda.so`, if it does not lie beside the library.
    #[must_use]
    pub fn cuda_module(mut self, path: impl Into<PathBuf>) -> Self {
        self.cuda_module = Some(path.into());
        self
    }

    /// CUDA: a file in which the timings of large products are kept from process to process.
    #[must_use]
    pub fn plan_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.plan_file = Some(path.into());
        self
    }

    /// Is told how many bytes of how many are loaded. `Break` ends the loading with `CANCELLED`.
    #[must_use]
    pub fn progress(mut self, progress: &'a dyn Fn(u64, u64) -> ControlFlow<()>) -> Self {
        self.progress = Some(progress);
        self
    }

    /// Calls `call` with these options as C has them, and with what keeps their hooks alive.
    fn with_raw<T>(
        &self,
        call: impl FnOnce(&sys::specbatch_model_options, &Keep) -> T,
    ) -> Result<T> {
        let hooks = Arc::new(self.hooks.clone());
        let cuda_module = self.cuda_module.as_deref().map(call::path).transpose()?;
        let plan_file = self.plan_file.as_deref().map(call::path).transpose()?;
        let mut raw = self.raw.0;
        install!(raw, &hooks);
        raw.cuda_module = cuda_module.as_ref().map_or(ptr::null(), |path| path.as_ptr());
        raw.plan_file = plan_file.as_ref().map_or(ptr::null(), |path| path.as_ptr());
        if let Some(progress) = &self.progress {
            raw.progress = Some(hooks::progress);
            raw.progress_user = progress as *const &Progress<'_> as *mut c_void;
        }
        Ok(call(&raw, &Keep::of(&hooks)))
    }
}

/// An opened checkpoint. It is immutable; a clone is another reference to the same model, and any
/// number of threads and pools may use one.
pub struct Model {
    raw: NonNull<sys::specbatch_model>,
    keep: Keep,
}

// SAFETY: models are immutable and their references are counted atomically, by the header; and the
// hooks may be called on any thread.
unsafe impl Send for Model {}
// SAFETY: the same.
unsafe impl Sync for Model {}

impl Model {
    /// Opens a folder as Hugging Face lays it out, or a GGUF file, with default options.
    ///
    /// # Errors
    /// See [`Model::open_with`].
    pub fn open(path: impl AsRef<Path>) -> Result<Model> {
        Model::open_with(path, &ModelOptions::new())
    }

    /// Opens a folder as Hugging Face lays it out, or a GGUF file. All files are closed afterwards.
    ///
    /// # Errors
    /// `IO`, `FORMAT`, `UNSUPPORTED`, `INVALID`, `OPTIONS`, `NOMEM`, `CANCELLED` by the progress
    /// function, `NO_DEVICE`, `DEVICE`.
    pub fn open_with(path: impl AsRef<Path>, options: &ModelOptions<'_>) -> Result<Model> {
        let path = call::path(path.as_ref())?;
        options.with_raw(|options, keep| {
            let mut raw = ptr::null_mut();
            // SAFETY: the path ends in NUL, and the options' pointers live during the call. The
            // hooks live in `keep` for longer.
            let status = unsafe { sys::specbatch_model_open(&mut raw, path.as_ptr(), options) };
            let model = NonNull::new(raw).map(|raw| Model { raw, keep: keep.clone() });
            call::created(status, model)
        })?
    }

    pub(crate) fn raw(&self) -> *mut sys::specbatch_model {
        self.raw.as_ptr()
    }

    pub(crate) fn keep(&self) -> &Keep {
        &self.keep
    }

    /// "llama", "qwen2", "qwen3", "qwen3_moe", "glm4", "glm4_moe", "mistral", "mixtral", "phi3",
    /// "gemma2", "gemma3_text", "smollm3" or "gpt_oss".
    pub fn arch(&self) -> &str {
        // SAFETY: the model is alive, and its strings live as long; for these four.
        unsafe { call::name(sys::specbatch_model_arch(self.raw())) }.unwrap_or("")
    }

    /// The type of the matrices in memory, or of most of their elements: "bf16" for example.
    pub fn dtype(&self) -> &str {
        // SAFETY: as for `arch`.
        unsafe { call::name(sys::specbatch_model_dtype(self.raw())) }.unwrap_or("")
    }

    /// One line that names all that the bits of results depend on.
    pub fn fingerprint(&self) -> &str {
        // SAFETY: as for `arch`.
        unsafe { call::name(sys::specbatch_model_fingerprint(self.raw())) }.unwrap_or("")
    }

    /// 32 hexadecimal digits over the configuration and the weights.
    pub fn digest(&self) -> &str {
        // SAFETY: as for `arch`.
        unsafe { call::name(sys::specbatch_model_digest(self.raw())) }.unwrap_or("")
    }

    /// The number of ids.
    pub fn vocab_size(&self) -> i32 {
        // SAFETY: the model is alive, for this and the ones below.
        unsafe { sys::specbatch_model_vocab_size(self.raw()) }
    }

    /// The number of layers.
    pub fn layers(&self) -> i32 {
        // SAFETY: as above.
        unsafe { sys::specbatch_model_layers(self.raw()) }
    }

    /// The most tokens that a prompt and its continuation may have together.
    pub fn context(&self) -> i32 {
        // SAFETY: as above.
        unsafe { sys::specbatch_model_context(self.raw()) }
    }

    /// Bytes of memory that the weights take.
    pub fn bytes(&self) -> u64 {
        // SAFETY: as above.
        unsafe { sys::specbatch_model_bytes(self.raw()) }
    }

    /// Whether it can take and give text.
    pub fn has_tokenizer(&self) -> bool {
        // SAFETY: as above.
        unsafe { sys::specbatch_model_has_tokenizer(self.raw()) == 1 }
    }

    /// The end-of-sequence ids.
    pub fn eos(&self) -> &[Token] {
        let mut n = 0;
        // SAFETY: the ids live as long as the model.
        unsafe { call::borrowed(sys::specbatch_model_eos(self.raw(), &mut n), n) }
    }
}

impl Clone for Model {
    fn clone(&self) -> Model {
        // SAFETY: the model is alive; the reference that is added is the clone's.
        unsafe { sys::specbatch_model_retain(self.raw()) };
        Model { raw: self.raw, keep: self.keep.clone() }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: the reference is this value's own.
        unsafe { sys::specbatch_model_close(self.raw()) };
        call::resume();
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Model").field(&self.fingerprint()).finish()
    }
}

/// Writes the checkpoint `from`, a folder or a GGUF file, as a GGUF file `to`, with the option
/// `weights`.
///
/// # Errors
/// `IO`, `FORMAT`, `UNSUPPORTED`, `INVALID`, `OPTIONS`, `NOMEM`, `CANCELLED` by the progress
/// function. Nothing of the file is left then.
pub fn convert(
    to: impl AsRef<Path>,
    from: impl AsRef<Path>,
    options: &ModelOptions<'_>,
) -> Result<()> {
    let (to, from) = (call::path(to.as_ref())?, call::path(from.as_ref())?);
    options.with_raw(|options, _keep| {
        // SAFETY: the paths end in NUL, and the options' pointers live during the call.
        call::checked(unsafe { sys::specbatch_convert(to.as_ptr(), from.as_ptr(), options) })
    })??;
    Ok(())
}
